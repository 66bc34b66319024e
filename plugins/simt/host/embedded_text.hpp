// A source that the assembler puts into the plugin: rlk_simt_text_<symbol>, ended by a 0.
#pragma once

#define RLK_SIMT_EMBED_TEXT(symbol, file)    \
  asm(".section .rodata, \"a\", @progbits\n" \
      ".hidden rlk_simt_text_" #symbol       \
      "\n"                                   \
      ".globl rlk_simt_text_" #symbol        \
      "\n"                                   \
      "rlk_simt_text_" #symbol               \
      ":\n"                                  \
      ".incbin \"" file                      \
      "\"\n"                                 \
      ".byte 0\n"                            \
      ".previous\n");                        \
  extern "C" const char rlk_simt_text_##symbol[] __attribute__((visibility("hidden")));
