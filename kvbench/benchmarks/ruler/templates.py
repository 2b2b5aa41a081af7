"""RULER's prompts: read at run time from the installed lm-eval, corrected, and checked against the official hashes."""

from functools import cache

from kvbench.benchmarks.lm_eval_files import INSTALL, lm_eval_tasks
from kvbench.benchmarks.python_texts import every_text, sha256
from kvbench.errors import UserError

# SHA-256 of the official texts (RULER c3f5e3b, scripts/data/synthetic), in UTF-8
SHA256 = {
    "niah": "b373c00e238df12bea974d3fdc4ffebcc0f04600885640250040e3c27169216f",
    "niah_prefix": "994f3a46e763414f630c39b097b66c4df6160ef1c5991817cfabee7bfee4ec19",
    "needle": "8b1728a938426e426c307f6c79fc57662c827cb42865cd1630410cd7009cf524",
    "noise": "c2fcf70de6081e6fb364c3e5e9a7c0a335a05837a0832ae7a33a1cfe7414bd09",
    "vt": "fcfaf2eab2bc3e35a119b13fe42e5902800291c4d6101c60be93ecf8b031fefa",
    "vt_prefix": "4a4e9010ec4141a3706929569612af94bd4098ee660862395a73b0100e52c5a6",
    "cwe": "45fff5d17627b65ac12c8bf0e60380cbb05966878794a18ec394c2df9bea19b1",
    "cwe_prefix": "8ee526599bbc73726f19bb07da106d143a194667cf52e08434c44ce652e08028",
    "fwe": "a0c7b873cf500d6ce65950a91baecd810ce34d151939da916a43fa5014178f9c",
    "fwe_prefix": "9a72271c5762c96d9adbf480f21e621c5855e48cc029605c1c422135c4db7a92",
    "qa": "18a659c9723f24f172004ab1692ae88efaf0c07417b6d7326f813c7169011d28",
    "qa_prefix": "255204f061d7e266f2aa1e50df08977c15a9c31b4cd8f3fbef0f96da93d564aa",
    "document": "ce8bd2851618becfb57dffd626111f577bb4ba0d18e5704dcedcddd227c66098",
}


@cache
def official_texts() -> dict[str, str]:
    """Every official text by its name in SHA256: templates, answer prefixes, needle, noise, document.

    Raises UserError where lm-eval is not installed or has other texts.
    """
    names = {digest: name for name, digest in SHA256.items()}
    folder = lm_eval_tasks("ruler")
    texts = {}
    for text in (text for file in sorted(folder.glob("*.py")) for text in every_text(file)):
        # lm-eval drops the blank before an answer's prefix, and has a typo
        for candidate in (text, " " + text, text.replace("assgined", "assigned")):
            if name := names.get(sha256(candidate)):
                texts[name] = candidate
    if missing := sorted(set(SHA256) - set(texts)):
        raise UserError(
            f"the installed lm-eval ({folder}) does not hold the official RULER texts of {', '.join(missing)}: "
            + INSTALL
        )
    return texts
