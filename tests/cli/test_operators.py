"""`rlk-plugins run` on files, against the formulas in plain Python."""
import json
import math
import random
import struct

import command
from command import from_bf16, read_npy, to_bf16, write_npy


def logp_rows(rows, ids, temperature=1.0):
    """(logp, lse, entropy) of each row by the definition."""
    out = []
    for row, token in zip(rows, ids):
        z = [x / temperature for x in row]
        top = max(z)
        lse = top + math.log(math.fsum(math.exp(x - top) for x in z))
        entropy = lse - math.fsum(math.exp(x - lse) * x for x in z if x != -math.inf)
        out.append((z[token] - lse, lse, entropy))
    return out


class Logp(command.Case):
    N, V = 7, 97

    def setUp(self):
        super().setUp()
        rng = random.Random(5)
        self.rows = [[rng.gauss(0, 4) for _ in range(self.V)] for _ in range(self.N)]
        self.ids = [rng.randrange(self.V) for _ in range(self.N)]
        write_npy(self.path("ids.npy"), "<i8", (self.N,), self.ids)

    def write_logits(self, descr):
        flat = [x for row in self.rows for x in row]
        if descr in ("<u2", "<V2"):
            flat = [to_bf16(x) for x in flat]
            values = [from_bf16(word) for word in flat]
        elif descr == "<f4":
            values = [struct.unpack("<f", struct.pack("<f", x))[0] for x in flat]
        else:
            values = flat
        write_npy(self.path("logits.npy"), descr, (self.N, self.V), flat)
        return [values[i * self.V:(i + 1) * self.V] for i in range(self.N)]

    def run_logp(self, *words, suffix="", code=0):
        return self.run_command("run", "logp", "--input", "logits=logits.npy" + suffix, "--input", "ids=ids.npy",
                                "--output", "logp=logp.npy", *words, code=code)

    def assert_close(self, got, expected, bound):
        self.assertEqual(len(got), len(expected))
        for a, b in zip(got, expected):
            self.assertLessEqual(abs(a - b), bound * max(1.0, abs(b)), f"{a} is not {b}")

    def test_all_outputs_in_each_dtype(self):
        for descr, suffix, result, bound in (("<f4", "", "<f4", 1e-6), ("<f8", "", "<f8", 1e-13),
                                             ("<u2", ":bf16", "<f4", 1e-6), ("<V2", "", "<f4", 1e-6)):
            with self.subTest(descr=descr):
                expected = logp_rows(self.write_logits(descr), self.ids, temperature=0.7)
                done = self.run_logp("--output", "lse=lse.npy", "--output", "entropy=entropy.npy", "--param",
                                     "temperature=0.7", suffix=suffix)
                for i, name in enumerate(("logp", "lse", "entropy")):
                    got_descr, shape, got = read_npy(self.path(name + ".npy"))
                    self.assertEqual((got_descr, shape), (result, (self.N,)))
                    self.assert_close(got, [row[i] for row in expected], bound)
                    self.assertRegex(done.stdout, rf"(?m)^{name} +\[7\] +f(32|64) +- +cpu/\w+ ")

    def test_an_output_in_the_dtype_asked_for(self):
        expected = [row[0] for row in logp_rows(self.write_logits("<V2"), self.ids)]
        self.run_command("run", "logp", "--input", "logits=logits.npy:bf16", "--input", "ids=ids.npy", "--output",
                         "logp=logp.npy:bf16")
        descr, _, words = read_npy(self.path("logp.npy"))
        self.assertEqual(descr, "<V2")
        self.assert_close([from_bf16(word) for word in words], expected, 2.0 ** -8)
        self.run_command("run", "logp", "--input", "logits=logits.npy", "--input", "ids=ids.npy", "--output",
                         "logp=logp.npy:f64")
        descr, _, values = read_npy(self.path("logp.npy"))
        self.assertEqual(descr, "<f8")
        self.assert_close(values, expected, 1e-6)

    def test_optional_outputs_are_computed_only_when_asked(self):
        self.write_logits("<f4")
        outputs = json.loads(self.run_logp("--json").stdout)["outputs"]
        self.assertEqual([output["name"] for output in outputs], ["logp"])

    def test_ignored_rows_are_zero_and_their_ids_do_not_matter(self):
        rows = self.write_logits("<f4")
        write_npy(self.path("ids.npy"), "<i8", (self.N,), [-100, 10 ** 15] + self.ids[2:])
        write_npy(self.path("mask.npy"), "|u1", (self.N,), [1, 0] + [1] * (self.N - 2))
        self.run_logp("--input", "mask=mask.npy")
        got = read_npy(self.path("logp.npy"))[2]
        self.assertEqual(got[:2], [0.0, 0.0])
        self.assert_close(got[2:], [row[0] for row in logp_rows(rows[2:], self.ids[2:])], 1e-6)

    def test_a_data_error_names_row_and_value_and_spares_the_other_rows(self):
        rows = self.write_logits("<f4")
        write_npy(self.path("ids.npy"), "<i8", (self.N,), self.ids[:3] + [self.V] + self.ids[4:])
        done = self.run_logp(code=1)
        self.assertRegex(done.stderr, r"row 3\b")
        self.assertIn(str(self.V), done.stderr)
        got = read_npy(self.path("logp.npy"))[2]
        self.assertTrue(math.isnan(got[3]))
        keep = [i for i in range(self.N) if i != 3]
        self.assert_close([got[i] for i in keep],
                          [row[0] for row in logp_rows([rows[i] for i in keep], [self.ids[i] for i in keep])], 1e-6)

    def test_no_rows_at_all(self):
        write_npy(self.path("logits.npy"), "<f4", (0, self.V), [])
        write_npy(self.path("ids.npy"), "<i8", (0,), [])
        self.run_logp()
        self.assertEqual(read_npy(self.path("logp.npy"))[1:], ((0,), []))

    def test_a_shape_that_breaks_the_declaration_is_a_usage_error(self):
        self.write_logits("<f4")
        write_npy(self.path("ids.npy"), "<i8", (self.N + 1,), self.ids + [0])
        text = self.run_logp(code=2).stderr
        self.assertIn("row_indices", text)

    def test_a_mask_of_another_dtype_is_refused_with_the_word_that_casts_it(self):
        self.write_logits("<f4")
        write_npy(self.path("mask.npy"), "<i8", (self.N,), [1, 0] + [1] * (self.N - 2))
        self.assertIn("--input mask=mask.npy:u8 casts", self.run_logp("--input", "mask=mask.npy", code=2).stderr)
        self.run_logp("--input", "mask=mask.npy:u8")
        self.assertEqual(read_npy(self.path("logp.npy"))[2][1], 0.0)
        write_npy(self.path("mask.npy"), "<f4", (self.N,), [1, 0] + [1] * (self.N - 2))
        self.assertIn("--input mask=mask.npy:u8 casts", self.run_logp("--input", "mask=mask.npy", code=2).stderr)
        self.run_logp("--input", "mask=mask.npy:u8")
        self.assertEqual(read_npy(self.path("logp.npy"))[2][1], 0.0)
        write_npy(self.path("mask.npy"), "<f4", (self.N,), [1, 0.5] + [1] * (self.N - 2))
        self.assertIn("element 1 is 0.5, which is not whole",
                      self.run_logp("--input", "mask=mask.npy:u8", code=2).stderr)

    def test_a_backend_that_is_not_here_is_refused_with_its_name(self):
        self.write_logits("<f4")
        done = self.run_command("run", "logp", "--input", "logits=logits.npy", "--input", "ids=ids.npy", "--backend",
                                "vaporware", code=1)
        self.assertIn("vaporware", done.stderr)

    def test_the_gradient_is_the_difference_quotient(self):
        rows = self.write_logits("<f8")
        self.run_logp("--output", "lse=lse.npy")
        grads = [1.0 + 0.1 * i for i in range(self.N)]
        write_npy(self.path("grad.npy"), "<f8", (self.N,), grads)
        self.run_command("run", "logp_backward", "--input", "logits=logits.npy", "--input", "ids=ids.npy", "--input",
                         "lse=lse.npy", "--input", "grad_logp=grad.npy", "--output", "grad_logits=out.npy")
        got = read_npy(self.path("out.npy"))[2]
        step = 1e-5
        for row, column in ((0, 0), (3, self.ids[3]), (6, 96)):
            ends = []
            for sign in (1, -1):
                moved = list(rows[row])
                moved[column] += sign * step
                ends.append(logp_rows([moved], [self.ids[row]])[0][0])
            slope = (ends[0] - ends[1]) / (2 * step)
            self.assertAlmostEqual(got[row * self.V + column], grads[row] * slope, delta=1e-8)


class Others(command.Case):
    def test_a_loss_and_metrics_are_shown(self):
        write_npy(self.path("logp.npy"), "<f4", (2, 2), [-1, -2, -3, -4])
        words = ("run", "policy_loss", "--input", "logp=logp.npy", "--input", "advantages=logp.npy", "--output",
                 "metrics=metrics.npy")
        loss, metrics = self.json(*words)["outputs"]
        self.assertEqual(loss["value"], 2.5)
        self.assertEqual((metrics["elements"]["active_tokens"], metrics["elements"]["ratio"]), (4, 1))
        self.assertRegex(self.output(*words), r"(?m)^loss +\[1\] +f32 +2\.5 [^\n]*\n(.*\n)? +active_tokens 4, kl 0,")

    def test_sizes_of_1_are_repeated_or_dropped_and_said(self):
        write_npy(self.path("logp.npy"), "<f4", (2, 3), [-1, -2, -3, -4, -5, -6])
        write_npy(self.path("column.npy"), "<f4", (2, 1), [10, 20])
        write_npy(self.path("tokens.npy"), "<f4", (2, 3), [10, 10, 10, 20, 20, 20])
        write_npy(self.path("row.npy"), "<f4", (1, 3), [10, 20, 30])
        write_npy(self.path("numbers.npy"), "<f4", (2,), [10, 20])
        write_npy(self.path("one.npy"), "<f4", (), [2])
        words = ("policy_loss_backward", "--input", "logp=logp.npy", "--input", "grad_loss=one.npy", "--output",
                 "grad_logp=grad.npy")
        whole = self.json("run", *words, "--input", "advantages=tokens.npy")
        want = read_npy(self.path("grad.npy"))
        self.assertEqual(whole["notes"], [])
        self.assertIn("advantages [2, 1] was repeated to [2, 3]",
                      self.output("run", *words, "--input", "advantages=column.npy"))
        self.assertEqual(read_npy(self.path("grad.npy")), want)
        # [B, 1] is [B]: no row is guessed to be a column, nor a first size repeated.
        write_npy(self.path("zeros.npy"), "<f4", (2, 3), [0] * 6)
        self.output("run", *words, "--input", "advantages=zeros.npy", "--input", "sequence_advantages=column.npy")
        self.assertEqual(read_npy(self.path("grad.npy")), want)
        refused = self.usage_error("run", *words, "--input", "advantages=numbers.npy")
        self.assertIn("save advantages as [2, 1] to have it repeated to [2, 3]", refused)
        self.assertIn("[1, 3]; expected [B, T]", self.usage_error("run", *words, "--input", "advantages=row.npy"))

    def test_a_dtype_of_numpys_own_is_refused_with_the_word_that_casts_it(self):
        write_npy(self.path("logp.npy"), "<f4", (2, 2), [-1, -2, -3, -4])
        write_npy(self.path("doubles.npy"), "<f8", (2, 2), [1, 2, 3, 4])
        words = ("run", "policy_loss", "--input", "logp=logp.npy", "--input")
        self.assertIn("--input advantages=doubles.npy:f32 casts", self.usage_error(*words, "advantages=doubles.npy"))
        self.run_command(*words, "advantages=doubles.npy:f32")
        words = ("run", "policy_loss", "--input", "logp=doubles.npy", "--input")
        self.assertIn("--input logp=doubles.npy:f32 casts", self.usage_error(*words, "advantages=logp.npy"))

    def test_whole_numbers_are_cast_to_floating_point(self):
        write_npy(self.path("rewards.npy"), "<i8", (4,), [1, 0, 0, 1])
        words = ("run", "group_advantages", "--param", "samples_per_prompt=2", "--output", "advantages=a.npy", "--input")
        self.run_command(*words, "rewards=rewards.npy:f32")
        self.assertGreater(read_npy(self.path("a.npy"))[2][0], 0.7)
        write_npy(self.path("rewards.npy"), "<i8", (4,), [1, 0, 0, 2 ** 24 + 1])
        self.assertIn("element 3 is 16777217, which is not a number of f32",
                      self.usage_error(*words, "rewards=rewards.npy:f32"))

    def test_add_broadcasts_and_scales(self):
        write_npy(self.path("a.npy"), "<f4", (2, 3), [1, 2, 3, 4, 5, 6])
        write_npy(self.path("b.npy"), "<f4", (2, 1), [10, 20])
        self.run_command("run", "add", "--input", "a=a.npy", "--input", "b=b.npy", "--output", "out=out.npy", "--param",
                         "alpha=-0.5")
        self.assertEqual(read_npy(self.path("out.npy")), ("<f4", (2, 3), [-4, -3, -2, -6, -5, -4]))

    def test_packed_causal_attention(self):
        rng = random.Random(9)
        lengths_q, lengths_k, heads, dim = [2, 0, 3], [4, 1, 3], 2, 8
        tq, tk = sum(lengths_q), sum(lengths_k)
        q, k, v = ([rng.gauss(0, 1) for _ in range(t * h * dim)] for t, h in ((tq, heads), (tk, 1), (tk, 1)))
        write_npy(self.path("q.npy"), "<f8", (tq, heads, dim), q)
        write_npy(self.path("k.npy"), "<f8", (tk, 1, dim), k)
        write_npy(self.path("v.npy"), "<f8", (tk, 1, dim), v)
        for name, lengths in (("cq", lengths_q), ("ck", lengths_k)):
            write_npy(self.path(name + ".npy"), "<i4", (4,), [sum(lengths[:i]) for i in range(4)])
        self.run_command("run", "attention", "--input", "q=q.npy", "--input", "k=k.npy", "--input", "v=v.npy",
                         "--input", "cu_seqlens_q=cq.npy", "--input", "cu_seqlens_k=ck.npy",
                         "--param", "layout=packed", "--param", "causal=on", "--output", "out=out.npy")
        got = read_npy(self.path("out.npy"))[2]
        for b in range(3):
            q0, k0 = sum(lengths_q[:b]), sum(lengths_k[:b])
            for i in range(lengths_q[b]):
                for h in range(heads):
                    at = ((q0 + i) * heads + h) * dim
                    visible = range(max(0, i + lengths_k[b] - lengths_q[b] + 1))
                    scores = [math.fsum(q[at + d] * k[(k0 + j) * dim + d] for d in range(dim)) / math.sqrt(dim)
                              for j in visible]
                    weights = [math.exp(s - max(scores)) for s in scores]
                    for d in range(dim):
                        want = math.fsum(w * v[(k0 + j) * dim + d] for j, w in enumerate(weights)) / math.fsum(weights)
                        self.assertAlmostEqual(got[at + d], want, delta=1e-12)


class Described(command.Case):
    def test_a_call_of_every_operator_is_explained_without_a_word_about_sizes(self):
        for op in self.json("ops")["ops"]:
            with self.subTest(op=op["name"]):
                self.assertIn("chosen: cpu/", self.output("explain", op["name"]))

    def test_an_input_that_has_the_shape_of_another_takes_it_or_names_it(self):
        for words in (("input=4x8",), ("gate=4x8",), ("input=4x8,gate=4x8",)):
            text = self.output("explain", "geglu", "--shape", *words)
            self.assertIn("input f32 4x8, gate f32 4x8", text)
        self.assertEqual(len(self.json("bench", "swiglu", "--seconds", "0.02")["rows"]), 1)


if __name__ == "__main__":
    command.main()
