#!/usr/bin/env python3
"""GRPO by TRL on one card, of a Qwen3-shaped model of random weights: TRL's own functions, rlk's, and TRL's in fp32 beside them.

    pip install rlk-*.whl trl==1.16.0 && python3 bench/grpo_trl.py [--json FILE]        # Qwen3-0.6B's shape, bf16 autocast
    PYTHONPATH=build/release/python python3 bench/grpo_trl.py --tiny --steps 3            # without a card: seconds

Nothing is downloaded: model, tokenizer, prompts and reward are made here. Three trainings from one start, by the same completions:

- "trl": as TRL has it (attention by PyTorch). Its completions are kept.
- "fp32": the same without autocast, on those completions: where both others are rounded, this is not.
- "rlk": with enable("trl") and enable("transformers"). It generates too, which is timed, and goes on with the kept completions,
  since tokens drawn from rounded probabilities part after a few.

Losses and the like agree when rlk's are no farther from fp32's than twice TRL's own are (of the largest of all steps), or
within 2^-20 of the largest value. Of each replaced function, results and gradients on the tensors of a step keep the bound that
tests/python/trainers_truth.py declares, beside fp64, with what the operator's declaration permits to be rounded to 16 bits.
Ends with 1 when one of that does not hold, or a call was staged or refused."""
import argparse
import contextlib
import gc
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("RLK_FALLBACK", "strict")  # a call that would be staged on the CPU is an error
import datasets
import grpo_functions
import rlk
import rlk.integrations
import tokenizers
import torch
import transformers
import trl

WORDS = "<pad> <eos> zero one two three four five six seven eight nine plus minus times is what".split()
METRICS = ("loss", "kl", "grad_norm", "entropy")
OPERATORS = ("linear_logp", "linear_logp_backward", "attention", "attention_backward")
# As transformers calls it from 5.20 or so on, and as before.
CHECKPOINTING = next(x for x in ("activation_checkpointing", "gradient_checkpointing") if x in trl.GRPOConfig.__dataclass_fields__)
RECORDED_STEP, WARM_STEPS = 2, 2


def tokenizer():
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<pad>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", eos_token="<eos>")


def prompts(longest):
    """Sums of some numbers, of different lengths: shorter ones are padded."""
    numbers = WORDS[2:12]
    lengths = [4 + (7 * i) % max(longest - 3, 1) for i in range(200)]
    return [{"prompt": " ".join(["what", "is", *(numbers[(i * j + j) % 10] for j in range(n - 2))])} for i, n in enumerate(lengths)]


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Trainer(trl.GRPOTrainer):
    """Keeps its completions, or generates (or does not) and goes on with those that the first training kept."""

    def follow(self, completions, keeps, generates):
        self.completions, self.keeps, self.generates = completions, keeps, generates
        self.generated, self.generate_seconds, self.same, self.drawn = 0, 0.0, 0, 0

    def _generate_single_turn(self, prompt_ids, *more, **named):
        own = None
        if self.generates:
            synchronize()
            begin = time.perf_counter()
            own, _ = super()._generate_single_turn(prompt_ids, *more, **named)
            synchronize()
            self.generate_seconds += time.perf_counter() - begin
        if self.keeps:
            self.completions.append((prompt_ids, own))
        prompts_then, kept = self.completions[self.generated]
        if prompts_then != prompt_ids:
            raise RuntimeError("a training has other prompts than the first: nothing can be compared")
        self.generated += 1
        if own is not None:
            self.drawn += sum(map(len, kept))
            self.same += sum(a == b for x, y in zip(own, kept) for a, b in zip(x, y))
        return kept, None


class Clock(transformers.TrainerCallback):
    """Seconds of each step, and of the generation in it; what lies on the card beside torch's."""

    def __init__(self, recorder):
        self.steps, self.generation, self.recorder, self.trainer, self.beside = [], [], recorder, None, 0

    def on_step_begin(self, args, state, control, **_):
        if self.recorder is not None:
            self.recorder.on = state.global_step in (RECORDED_STEP, RECORDED_STEP + 1)
        synchronize()
        self.began, self.before = time.perf_counter(), self.trainer.generate_seconds

    def on_step_end(self, args, state, control, **_):
        synchronize()
        self.steps.append(time.perf_counter() - self.began)
        self.generation.append(self.trainer.generate_seconds - self.before)
        if torch.cuda.is_available():
            free, total = torch.cuda.mem_get_info()
            self.beside = max(self.beside, total - free - torch.cuda.memory_reserved())


def train(options, start, completions, name):
    """A training as the report has it."""
    bf16, ours = name != "fp32", name == "rlk"
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    recorder = None
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        states = []
        if ours:
            states = [stack.enter_context(rlk.integrations.enable(package)) for package in ("trl", "transformers")]
            recorder = stack.enter_context(grpo_functions.Recorder())
        transformers.set_seed(11)
        arguments = trl.GRPOConfig(
            output_dir=folder, max_steps=options.steps, per_device_train_batch_size=options.batch, num_generations=8,
            num_iterations=2, max_completion_length=options.tokens, generation_kwargs={"min_new_tokens": options.tokens}, learning_rate=1e-5,
            beta=0.04, temperature=0.9, logging_steps=1, report_to=[], save_strategy="no", bf16=bf16, seed=11, disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(), **{CHECKPOINTING: False},
            model_init_kwargs={"attn_implementation": "rlk" if ours else "sdpa", "dtype": "float32"})
        half = options.vocabulary // 2
        trainer = Trainer(
            model=start, args=arguments, processing_class=tokenizer(),
            train_dataset=datasets.Dataset.from_list(prompts(options.prompt)),
            reward_funcs=lambda completion_ids, **_: [sum(i < half for i in ids) / len(ids) for ids in completion_ids])
        trainer.follow(completions, keeps=name == "trl", generates=name != "fp32")
        trainer.remove_callback(transformers.PrinterCallback)
        clock = Clock(recorder)
        clock.trainer = trainer
        trainer.add_callback(clock)
        trainer.train()
        log = [line for line in trainer.state.log_history if "loss" in line]
        run = {"log": [{key: line.get(key) for key in (*METRICS, "reward")} for line in log], "step_s": clock.steps,
               "generation_s": clock.generation, "same_tokens": [trainer.same, trainer.drawn]}
        if torch.cuda.is_available():
            run |= {"peak_torch_bytes": torch.cuda.max_memory_allocated(), "beside_torch_bytes": clock.beside}
        del trainer, clock
        if ours:
            run["calls"] = {name: calls for state in states for name, calls in state.calls().items() if calls}
            gc.collect()
            run["functions"] = grpo_functions.compare(recorder, bf16)
    return run


def agreement(runs):
    """[(metric, TRL's largest distance from fp32's in a step, rlk's, what is allowed, fp32's largest value)]"""
    rows = []
    for metric in METRICS:
        values = {name: [line[metric] for line in run["log"]] for name, run in runs.items()}
        of = {name: max(abs(a - b) for a, b in zip(values[name], values["fp32"], strict=True)) for name in ("trl", "rlk")}
        largest = max(map(abs, values["fp32"]))
        rows.append((metric, of["trl"], of["rlk"], max(2 * of["trl"], 2.0**-20 * largest), largest))
    return rows


def print_report(runs, rows, staged, refused):
    print(f"{'step':>4} " + " ".join(f"{m + ' trl':>13} {'rlk':>12} {'fp32':>12}" for m in ("loss", "kl", "grad_norm")))
    for i, (theirs, ours, fp32) in enumerate(zip(*(runs[name]["log"] for name in ("trl", "rlk", "fp32"))), 1):
        print(f"{i:4} " + " ".join(f"{theirs[m]:13.3e} {ours[m]:12.3e} {fp32[m]:12.3e}" for m in ("loss", "kl", "grad_norm")))
    print("\nlargest distance from fp32     trl        rlk    allowed   largest value")
    for metric, theirs, ours, allowed, largest in rows:
        print(f"  {metric:20} {theirs:12.2e} {ours:10.2e} {allowed:10.2e} {largest:12.2e}  {'' if ours <= allowed else 'TOO FAR'}")
    print("\nmean of a step, s         whole  generation    the rest   peak torch GB   beside torch GB")
    for name in ("trl", "rlk"):
        run = runs[name]
        whole, generation = run["step_s"][WARM_STEPS:], run["generation_s"][WARM_STEPS:]
        both = [statistics.fmean(x) for x in (whole, generation)]
        print(f"  {name:20} {both[0]:10.4f} {both[1]:11.4f} {both[0] - both[1]:11.4f} {run.get('peak_torch_bytes', 0) / 1e9:14.2f} "
              f"{run.get('beside_torch_bytes', 0) / 1e9:16.2f}")
    same, drawn = runs["rlk"]["same_tokens"]
    print(f"  of {drawn} tokens that rlk's training drew, {same} are those that TRL's drew at that place")
    print(f"\n{'function on the tensors of a step':58} {'rlk us':>9} {'trl us':>9} {'trl/rlk':>8} {'error of its bound':>20}")
    for row in runs["rlk"]["functions"]:
        if "refused" in row:
            print(f"{row['name']:58} refused: {row['refused'][:300]}")
            continue
        print(f"{row['name']:58} {row['rlk_us']:9.1f} {row['original_us']:9.1f} {row['original_us'] / row['rlk_us']:8.2f} "
              f"{row['rlk_error']:8.2f} (trl {row['original_error']:.2f})")
    print("\ncalls:", runs["rlk"]["calls"])
    print("staged:", staged or "none", "| left to the originals:", refused or "none")


def verify(patience):
    """Seconds until the card's operators of a step have their verdicts. The others are tried behind, on the card, which a
    clock would see: it waits for them, at most so many seconds more."""
    begin = time.perf_counter()
    if torch.cuda.is_available():
        rlk.require("cuda:" + ",".join(OPERATORS))
    taken = time.perf_counter() - begin
    waiting = lambda: sum(p.get("ops", {}).get("waiting", 0) for p in rlk.list()["plugins"] if p["backend"] == "cuda")
    while waiting() and time.perf_counter() - begin < patience:
        time.sleep(1)
    if waiting():
        print(f"{waiting()} operators are still being tried on the card, beside what is timed", file=sys.stderr)
    return taken


def counted():
    return {row["name"]: row for row in rlk.counters()["ops"] if row.get("calls")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="all numbers, to this file")
    parser.add_argument("--tiny", action="store_true", help="a model of 64 columns and two layers, as without a card")
    parser.add_argument("--wait", type=float, default=240, help="seconds, at most, for operators that are tried behind")
    sizes = {"steps": (20, 20), "layers": (28, 2), "hidden": (1024, 64), "batch": (32, 8), "prompt": (64, 12), "tokens": (64, 12),
             "vocabulary": (151936, 512)}
    for name in sizes:
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    tiny = options.tiny or not torch.cuda.is_available()
    for name, (large, small) in sizes.items():
        if getattr(options, name) is None:
            setattr(options, name, small if tiny else large)
    if tiny:
        torch.set_num_threads(1)
    head = 16 if tiny else 128
    heads = options.hidden // (16 if tiny else 64)
    config = transformers.Qwen3Config(
        vocab_size=options.vocabulary, hidden_size=options.hidden, intermediate_size=3 * options.hidden, head_dim=head,
        num_hidden_layers=options.layers, num_attention_heads=heads, num_key_value_heads=heads // 2, tie_word_embeddings=True,
        max_position_embeddings=4096, pad_token_id=0, eos_token_id=1, bos_token_id=None)
    completions, runs = [], {}
    with tempfile.TemporaryDirectory() as folder:
        start = os.path.join(folder, "start")  # the policy and the reference that the KL is to
        transformers.set_seed(7)
        model = transformers.Qwen3ForCausalLM(config)
        parameters = sum(p.numel() for p in model.parameters())
        model.save_pretrained(start)
        del model
        verified = 0.0
        for name in ("trl", "fp32", "rlk"):
            if name == "rlk":
                verified = verify(options.wait)
            began = time.perf_counter()
            runs[name] = train(options, start, completions, name)
            runs[name]["training_s"] = time.perf_counter() - began
            print(f"{name}: {runs[name]['training_s']:.1f} s", file=sys.stderr, flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{device}, torch {torch.__version__}, transformers {transformers.__version__}, TRL {trl.__version__}; "
          f"{parameters / 1e6:.0f} M parameters, {options.batch} sequences of at most {options.prompt} + {options.tokens} tokens; "
          f"operators verified in {verified:.1f} s")
    counters = counted()
    staged = {name: row["staged"] for name, row in counters.items() if row["staged"]}
    refused = {name: {why: n for why, n in calls.items() if why != "rlk"} for name, calls in runs["rlk"]["calls"].items()}
    refused = {name: reasons for name, reasons in refused.items() if reasons}
    rows = agreement(runs)
    print_report(runs, rows, staged, refused)
    slower = [row["name"] for row in runs["rlk"]["functions"] if row.get("original_us", 0) < 0.9 * row.get("rlk_us", 0)]
    failures = [metric for metric, _, ours, allowed, _ in rows if not ours <= allowed]
    failures += [row["name"] for row in runs["rlk"]["functions"] if "refused" in row or not row["rlk_error"] <= 1]
    failures += [f"{name} staged" for name in staged] + [f"{name} left to the original" for name in refused]
    print("slower than the original:", ", ".join(slower) or "none", "| does not hold:", ", ".join(failures) or "none")
    if options.json:
        machine = {"device": device, "torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__}
        document = {"schema": 1, "machine": machine, "options": vars(options), "parameters": parameters, "verified_s": verified,
                    "runs": runs, "agreement": [dict(zip(("metric", "trl", "rlk", "allowed", "largest"), row)) for row in rows],
                    "counters": counters, "slower": slower, "failures": failures}
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
