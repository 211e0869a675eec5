"""Learning the test-time objective itself, by differentiating through the adaptation step."""

from fenchel.train.meta.fit import Fit, Fits, fit
from fenchel.train.meta.gradient import MetaGradient, meta_gradient
from fenchel.train.meta.learn import learn
from fenchel.train.meta.run import MetaRecipe, MetaRun
from fenchel.train.meta.score import Scoring, baselines, means, score
from fenchel.train.meta.split import Split, split_rows
from fenchel.train.meta.target import Target, source_logits, uniform_logits

__all__ = [
    "Fit",
    "Fits",
    "MetaGradient",
    "MetaRecipe",
    "MetaRun",
    "Scoring",
    "Split",
    "Target",
    "baselines",
    "fit",
    "learn",
    "means",
    "meta_gradient",
    "score",
    "source_logits",
    "split_rows",
    "uniform_logits",
]
