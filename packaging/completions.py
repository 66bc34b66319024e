"""Completion of rlk-plugins' words for bash, zsh and fish, made from what the command says of itself (documents.py)."""


def first_words(verb, operators):
    """What may stand as the verb's first operand, where that is known."""
    first = verb["operands"][0]["name"] if verb["operands"] else ""
    if first == "OP":
        return operators
    return [word for word in first.split("|") if word.islower()] if "|" in first else []


def takes(verb, what):
    """Whether an operand of the verb is of this kind: a plugin's "ID", a "FILE"."""
    return any(word.startswith(what) for operand in verb["operands"] for word in operand["name"].split("|"))


# Plugins' ids by their files' names, in the folders that are searched: the shell probes no plugin while a user types.
_IDS = """_rlk_plugins_ids() {
  local bin place file
  bin=$(dirname -- "$(command -v rlk-plugins)")
  { echo cpu
    printf '%s\\n' "${RLK_PLUGIN_PATH:-}:${RLK_ADD_PLUGIN_PATH:-}:$bin/../lib/rlk/plugins:$bin/../lib64/rlk/plugins" |
      tr : '\\n' | while read -r place; do
        for file in "$place" "$place"/*; do
          case ${file##*/} in librlk_plugin_*.so) file=${file##*/librlk_plugin_}; echo "${file%.so}" ;; esac
        done
      done
  } | sort -u
}"""


def options_of(verb):
    return ["--" + option["name"] for option in verb["options"]]


def quoted(text, quote):
    """Between single quotes; `quote` is what stands for one inside."""
    return "'" + text.replace("\n", " ").replace("'", quote) + "'"


def bash(verbs, operators):
    names = " ".join(verb["name"] for verb in verbs)
    cases = []
    for verb in verbs:
        ids = " ids=1;" if takes(verb, "ID") else ""
        files = " files=1;" if takes(verb, "FILE") else ""
        cases.append(f"    {verb['name']}) options='{' '.join(options_of(verb))}'; words='{' '.join(first_words(verb, operators))}';"
                     f"{ids}{files} ;;")
    return "\n".join([
        "# bash completion for rlk-plugins; made from what the command says of itself.",
        _IDS,
        "_rlk_plugins() {",
        "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options= words= ids= files=",
        "  COMPREPLY=()",
        "  if [ \"$COMP_CWORD\" -eq 1 ]; then",
        f"    mapfile -t COMPREPLY < <(compgen -W '{names} help --version --help' -- \"$current\")",
        "    return", "  fi",
        "  if [ \"$previous\" = --op ]; then",
        f"    mapfile -t COMPREPLY < <(compgen -W '{' '.join(operators)}' -- \"$current\")",
        "    return", "  fi",
        "  case ${COMP_WORDS[1]} in", *cases, "  esac",
        "  case $current in",
        "    -*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\") ;;",
        "    *) case $previous in --*) files=1 ;; esac",  # a value of an option may be a file
        "       [ -z \"$ids\" ] || words=\"$words $(_rlk_plugins_ids)\"",
        "       mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\"; [ -z \"$files\" ] || compgen -f -- \"$current\") ;;",
        "  esac", "}",
        "complete -o filenames -F _rlk_plugins rlk-plugins", ""])


def zsh(verbs, operators):
    described = [quoted(f"{verb['name']}:{verb['summary']}", "'\\''") for verb in verbs]
    cases = []
    for verb in verbs:
        options = [quoted(f"--{o['name']}:{o['help']}", "'\\''") for o in verb["options"]]
        ids = " $(_rlk_plugins_ids)" if takes(verb, "ID") else ""
        files = " files=1" if takes(verb, "FILE") else ""
        cases.append(f"  {verb['name']}) options=({' '.join(options)}); first=({' '.join(first_words(verb, operators))}{ids});{files} ;;")
    return "\n".join([
        "#compdef rlk-plugins",
        "# zsh completion for rlk-plugins; made from what the command says of itself.",
        _IDS,
        "local -a verbs options first operators",
        "local files=",
        "verbs=(", *("  " + one for one in described), "  'help:this text')",
        f"operators=({' '.join(operators)})",
        "if (( CURRENT == 2 )); then _describe verb verbs; return; fi",
        "if [[ $words[CURRENT-1] == --op ]]; then compadd -a operators; return; fi",
        "case $words[2] in", *cases, "esac",
        "if [[ $PREFIX == -* ]]; then _describe -o option options; return; fi",
        "compadd -a first",
        "if [[ -n $files || $words[CURRENT-1] == --* ]]; then _files; fi", ""])


def fish(verbs, operators):
    lines = ["# fish completion for rlk-plugins; made from what the command says of itself.",
             "function __rlk_plugins_ids",
             "  echo cpu",
             "  for place in (string split : \"$RLK_PLUGIN_PATH:$RLK_ADD_PLUGIN_PATH\") (dirname (command -v rlk-plugins))/../lib/rlk/plugins",
             "    string replace -rf '^.*/librlk_plugin_(.*)\\.so$' '$1' $place $place/*",
             "  end",
             "end"]
    for verb in [*verbs, {"name": "help", "summary": "this text", "options": [], "operands": []}]:
        lines.append("complete -c rlk-plugins -n __fish_use_subcommand -f -a "
                     f"{verb['name']} -d {quoted(verb['summary'], chr(92) + chr(39))}")
        seen = f"complete -c rlk-plugins -n '__fish_seen_subcommand_from {verb['name']}'"
        for option in verb["options"]:
            value = " -r" if option["value"] else ""
            if option["name"] == "op":
                value = f" -x -a '{' '.join(operators)}'"
            lines.append(f"{seen} -l {option['name']}{value} -d {quoted(option['help'], chr(92) + chr(39))}")
        if first := first_words(verb, operators):
            lines.append(f"{seen} -a '{' '.join(first)}'")
        if takes(verb, "ID"):
            lines.append(f"{seen} -a '(__rlk_plugins_ids)'")
        if not takes(verb, "FILE"):
            lines.append(f"{seen} -f")
    return "\n".join([*lines, ""])
