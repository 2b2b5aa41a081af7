"""What kvbench needs on a machine that has torch and transformers and no network: wheels, unpacked, under 60 MiB.

    python -m scripts.maintenance.gpu_bundle build/gpu-bundle --python 3.12      # make gpu-bundle FOR=3.12

Copy the folder to the same place in a checkout there; `make gpu` finds it. Versions are those of constraints.txt.
numpy, pyyaml, tqdm, regex, safetensors, tokenizers, huggingface-hub and typing-extensions come with transformers.
"""

import subprocess
import sys
from pathlib import Path

from scripts.frame import script_parser

PLATFORM = ("manylinux2014_x86_64", "manylinux_2_28_x86_64")
PACKAGES = (
    "hydra-core omegaconf nvidia-ml-py psutil pydantic pydantic-core annotated-types typing-inspection "
    "rich markdown-it-py mdurl pygments accelerate pandas python-dateutil six tzdata rouge-score absl-py nltk joblib "
    "click rouge fuzzywuzzy wonderwords pytest pluggy iniconfig"
).split()
# No wheel on the index: built here, of Python alone.
SOURCES = ("antlr4-python3-runtime==4.9.3",)
MOST_MIB = 60
ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="version of Python there")
    options = parser.parse_args()
    wheels, packages = options.folder / "wheels", options.folder / "packages"
    wheels.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"]
    wheel = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels]
    subprocess.run([*wheel, *SOURCES, *pinned(["rouge-score"])], check=True)
    target = ["--only-binary=:all:", "--python-version", options.python]
    target += [f"--platform={platform}" for platform in PLATFORM]
    rest = pinned([name for name in PACKAGES if name != "rouge-score"])
    subprocess.run([*pip, "download", "--quiet", "--no-deps", *target, "--dest", wheels, *rest], check=True)
    install = [*pip, "install", "--quiet", "--no-deps", "--upgrade", *target, "--target", packages]
    subprocess.run([*install, *sorted(wheels.glob("*.whl"))], check=True)
    mib = sum(file.stat().st_size for file in wheels.iterdir()) / 2**20
    print(f"{len(list(wheels.iterdir()))} wheels of {mib:.1f} MiB in {wheels}, unpacked in {packages}")
    if mib > MOST_MIB:
        sys.exit(f"more than {MOST_MIB} MiB")


def pinned(names: list[str]) -> list[str]:
    """The names with their versions in constraints.txt, where it has them."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {line.partition("==")[0].lower().replace("_", "-"): line.strip() for line in lines if "==" in line}
    return [pins.get(name, name) for name in names]


if __name__ == "__main__":
    main()
