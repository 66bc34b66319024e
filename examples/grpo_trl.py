"""GRPO of a small random model with TRL on the CPU, by TRL's own functions and by rlk's: the losses of every step agree.

    packaging/wheel.sh && pip install build/wheel/rlk-*.whl trl==1.16.0     # no index has rlk yet
    python examples/grpo_trl.py [STEPS]          # 20 steps: seconds on one core

Nothing is downloaded: the model, the tokenizer and the prompts are made here. """
import contextlib
import os
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
import datasets
import rlk.integrations
import tokenizers
import torch
import transformers
import trl

WORDS = "<pad> <eos> zero one two three four five six seven eight nine plus minus times is what".split()
VOCABULARY = 512


def tokenizer():
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<pad>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", eos_token="<eos>")


def reward(completion_ids, **_):
    """The share of tokens that are of the lower half of the vocabulary."""
    return [sum(i < VOCABULARY // 2 for i in ids) / len(ids) for ids in completion_ids]


def train(steps, enabled, **options):
    """(the log of every step, how often rlk served which function); options are GRPOConfig's"""
    transformers.set_seed(11)
    config = transformers.Qwen2Config(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                                      pad_token_id=0, eos_token_id=1)
    prompts = [{"prompt": f"what is {a} plus {b}"} for a in WORDS[2:12] for b in WORDS[2:12]]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        state = stack.enter_context(rlk.integrations.enable("trl")) if enabled else None
        start = os.path.join(folder, "start")  # the policy and the reference that the KL is to
        transformers.Qwen2ForCausalLM(config).save_pretrained(start)
        arguments = trl.GRPOConfig(
            output_dir=folder, max_steps=steps, per_device_train_batch_size=8, num_generations=4, num_iterations=2,
            max_completion_length=12, learning_rate=2e-3, beta=0.04, temperature=0.9, logging_steps=1, report_to=[],
            save_strategy="no", use_cpu=True, bf16=False, seed=11, disable_tqdm=True,
            activation_checkpointing=False, **options)
        trainer = trl.GRPOTrainer(model=start, reward_funcs=reward, args=arguments, processing_class=tokenizer(),
                                  train_dataset=datasets.Dataset.from_list(prompts))
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        log = [line for line in trainer.state.log_history if "loss" in line]
        return log, state.calls() if state else {}


def main(steps):
    plain, _ = train(steps, False)
    ours, calls = train(steps, True)
    print(f"{'step':>4} {'loss':>12} {'with rlk':>12} {'gradient':>10} {'with rlk':>10} {'entropy':>9} {'with rlk':>9} "
          f"{'reward':>7}")
    blank = float("nan")  # of a step that goes once more over the completions before
    for i, (a, b) in enumerate(zip(plain, ours), 1):
        print(f"{i:4} {a['loss']:12.8f} {b['loss']:12.8f} {a['grad_norm']:10.6f} {b['grad_norm']:10.6f} "
              f"{a['entropy']:9.6f} {b['entropy']:9.6f} {b.get('reward', blank):7.3f}")
    print(calls)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
