"""The commands of the documentation: those that are run and how, those that are only parsed and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from documented_workplace import SHORT


@dataclass(frozen=True)
class Adjusted:
    """How a command is run: with other words in the place of some, options added, places emptied."""

    instead: dict[str, str] = field(default_factory=dict)
    more: str = ""
    without: tuple[str, ...] = ()

    def of(self, text: str) -> str:
        for word, other in self.instead.items():
            assert word in text, f"{word} is not in {text}"
            text = text.replace(word, other)
        return f"{text} {self.more}".strip()


AS_IT_IS = Adjusted()
OF_TEN_CLASSES = Adjusted(
    {"my_net.py:build": "my_net.py:build:classes=10", "net.pt": "net-cifar10.pt"}
)
ONE_TRIAL = "--learning-rate 0.01 --learning-rate 0.001 --temperature 1"

RUN = {
    "fenchel adapt --method learned:path=FILE": Adjusted(
        {"FILE": "runs/meta-ce/learned.safetensors"}, "--model runs/ce --images digits.npy"
    ),
    "fenchel adapt --model my_net.py:build --weights net.pt --trained-with poly:epsilon=6 "
    "--images photos/ --out predictions.csv": Adjusted(more="--force"),
    "fenchel adapt --model my_net.py:build --weights net.pt --trained-with poly:epsilon=6 "
    "--images photos/ --out predictions.csv --resume": AS_IT_IS,
    "fenchel adapt --model runs/ce --images digits.npy --log batches.jsonl --report page.html "
    "--save-adapted adapted.safetensors": Adjusted(more="--force"),
    "fenchel adapt --model runs/ce --images cameras/ --by-folder --force": AS_IT_IS,
    "fenchel adapt --plugin my_method.py --method margin:reach=1.0 --model my_net.py:build "
    "--images photos/": AS_IT_IS,
    "fenchel bench export sweep.toml --out results.csv": AS_IT_IS,
    "fenchel bench import other.sqlite results.csv": AS_IT_IS,
    "fenchel bench status sweep.toml": AS_IT_IS,
    "fenchel bench sweep.toml --dry-run": AS_IT_IS,
    "fenchel bench sweep.toml --limit 500": AS_IT_IS,
    "fenchel bench sweep.toml --model my_net.py:build --weights net.pt --trained-with "
    "poly:epsilon=6": OF_TEN_CLASSES,
    "fenchel bench sweep.toml --workers 2": Adjusted(without=("sweep.sqlite*",)),
    "fenchel data list": AS_IT_IS,
    "fenchel data list [--json]": Adjusted({"[--json]": "--json"}),
    "fenchel data make cifar10-c": Adjusted(more="--corruption fog"),
    "fenchel data make cifar10-c --severity 5": AS_IT_IS,
    "fenchel data make imagenet-c --severity 5 --images 1000": Adjusted(
        {"1000": "2"}, "--corruption contrast"
    ),
    "fenchel data show cifar10 --out grid.png": AS_IT_IS,
    "fenchel data verify PATH": Adjusted({"PATH": "photos"}),
    "fenchel derive my_losses.py:focal": AS_IT_IS,
    "fenchel doctor": AS_IT_IS,
    "fenchel list checkpoints": AS_IT_IS,
    "fenchel list checkpoints 'timm/resnet50.*'": AS_IT_IS,
    "fenchel list checkpoints transformers/google/siglip-base-patch16-224": AS_IT_IS,
    "fenchel list losses": AS_IT_IS,
    "fenchel list methods": AS_IT_IS,
    "fenchel list methods --plugin my_method.py": AS_IT_IS,
    "fenchel list zoo": AS_IT_IS,
    "fenchel meta fit runs/meta-ce --score": AS_IT_IS,
    "fenchel meta fit runs/meta-ce --symmetrised": AS_IT_IS,
    "fenchel meta plot runs/meta-ce": AS_IT_IS,
    "fenchel meta sweep --sources runs": Adjusted(more="--dry-run"),
    "fenchel meta train --checkpoint runs/ce --data cifar10-c --task-loss cross-entropy "
    "--out runs/meta-ce": Adjusted(more=SHORT, without=("runs/meta-ce",)),
    "fenchel meta train --checkpoint source.safetensors --data cifar10": Adjusted(more=SHORT),
    "fenchel meta train --model my_net.py:build --weights runs/own --data cifar10-c "
    "--out runs/meta-own": Adjusted(more=SHORT, without=("runs/meta-own",)),
    "fenchel models list": AS_IT_IS,
    "fenchel models show resnet50": AS_IT_IS,
    "fenchel report results.sqlite --out report.html": AS_IT_IS,
    "fenchel report sweep.sqlite --figures figures --format latex": AS_IT_IS,
    "fenchel report sweep.sqlite --out report.html": AS_IT_IS,
    "fenchel reproduce fig-gaussian": Adjusted(
        more="--dry-run"
    ),  # smaller in tests/cli/test_reproduce.py
    "fenchel reproduce fig-gaussian-map": Adjusted(more="--dry-run"),
    "fenchel reproduce fig-meta --scale cpu --workers 2": Adjusted(more="--dry-run"),
    "fenchel reproduce hostile": Adjusted(more="--dry-run"),
    "fenchel reproduce hostile --column source --column bn --column default": Adjusted(
        more="--dry-run"
    ),
    "fenchel reproduce list": AS_IT_IS,
    "fenchel reproduce table-bce --scale cpu --workers 2": Adjusted(more="--dry-run"),
    "fenchel reproduce table-domain": Adjusted(more="--dry-run"),
    "fenchel reproduce table-poly --scale cpu --checkpoints runs": Adjusted(more="--dry-run"),
    "fenchel calibrate --model runs/ce --images source.npz --out ce.calibration.safetensors "
    "--trials 2": Adjusted(more="--length 40 --force"),
    "fenchel adapt --model runs/ce --images digits.npy --settings ce.calibration.safetensors "
    "--out calibrated.csv": AS_IT_IS,
    "fenchel reproduce table-poly --scale cpu --workers 2": Adjusted(more="--dry-run"),
    "fenchel train --data cifar10 --model resnet26 --loss binary-cross-entropy --seed 0 "
    "--out runs/bce": Adjusted(more="--epochs 1 --limit 20 --batch-size 20"),
    "fenchel train --data cifar10 --model resnet26 --loss cross-entropy --out runs/ce": Adjusted(
        more="--epochs 1 --limit 20 --batch-size 20", without=("runs/ce",)
    ),
    "fenchel train --data cifar10 --model resnet26 --loss poly:epsilon=6": Adjusted(
        more="--epochs 1 --limit 20 --batch-size 20"
    ),
    "fenchel train --data cifar10 --model resnet26 --loss poly:epsilon=6 --epochs 20 --seed 0 "
    "--out runs/poly": Adjusted(
        more="--epochs 1 --limit 20 --batch-size 20", without=("runs/poly",)
    ),
    "fenchel train --data cifar10 --model my_net.py:build --loss poly:epsilon=6 --out runs/own": Adjusted(
        more="--epochs 1 --limit 20 --batch-size 20", without=("runs/own",)
    ),
    "fenchel tune sweep.toml --model my_net.py:build --weights net.pt --trained-with "
    "poly:epsilon=6": Adjusted(
        OF_TEN_CLASSES.instead, f"{ONE_TRIAL} --optimizer sgd --store own.sqlite --out own.json"
    ),
    "fenchel tune sweep.toml --optimizer sgd --limit 2000 --final-limit 5000": Adjusted(
        more=ONE_TRIAL
    ),
    "fenchel tune sweep.toml --workers 2": Adjusted(more=f"{ONE_TRIAL} --optimizer sgd"),
}
"""What is run, in the workplace; what is added makes it small, by options that the last one wins."""

PARSED = {
    "fenchel adapt --model runs/ce --images digits.npy --shards 2 --executor ray --at-once 2": "starts Ray; "
    "tests/predict/test_shards.py does",
    "torchrun --nproc-per-node 2 -m fenchel adapt --model runs/ce --images digits.npy --out shared.csv": (
        "starts three processes; tests/predict/test_ranks.py does"
    ),
    "fenchel serve --model runs/ce --store streams --replicas 2": "runs for ever; tests/serve runs it",
    "fenchel serve --model zoo:cifar10-resnet26-poly --store streams": "as above",
    "pip install 'fenchel[serve]'": "installs",
    "fenchel bench sweep.toml --executor ray --ray-address auto": "needs a Ray cluster",
    "fenchel data fetch cifar10": "downloads; tests/data/test_fetch.py fetches from its own server",
    "fenchel data fetch cifar10 mnist": "downloads, as above",
    "fenchel models fetch resnet50": "downloads; tests/models/test_pretrained.py fetches from its own server",
    "fenchel reproduce table-ce --scale cpu --checkpoints pretrained:mobilenet-v2": "needs the weights",
    "fenchel calibrate --model runs/ce --images source.npz": "the one with --out is run",
    "fenchel demo": "trains for a minute; tests/demo runs it smaller",
    "make bench": "measures for hours",
    "make docs": "builds the site; tests/site builds it once for all of its tests",
    "make demo": "sets up an environment, then trains for a minute",
    "make format": "rewrites the tree",
    "make notebooks": "runs experiments for minutes; test_notebooks.py runs them small",
    "make results": "rewrites the tree; tests/test_results.py makes the same files",
    "make test": "would run this test",
    "pip install .": "installs",
    "pip install 'fenchel[demo]'": "installs",
    "pip install 'fenchel[ray]'": "installs",
    "python benchmarks/corruptions.py --beside --rounds 1": "measures for a minute",
    "python benchmarks/memory.py --quick": "takes a minute; tests/benchmarks runs it with one round",
    "python benchmarks/step.py --network thin --retain --rounds 9": "measures for minutes",
    "python benchmarks/train.py": "measures for minutes; tests/benchmarks runs it with --quick",
    "python results/publish.py collect reproduce": "rewrites the tree; tests/test_results.py",
}
"""What is parsed to the last option and not run, and why."""
