"""The catalogue knows the loss behind public checkpoints, says how, and asks where it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import fenchel
from fenchel.losses import BinaryCrossEntropy, parse
from fenchel.models import Preprocessed, Preprocessing, catalogue, open_model
from fenchel.models.catalogue import look_up, matching, name_of, rules

BCE, CE = "binary-cross-entropy", "cross-entropy"
SMOOTHED = "label-smoothing:smoothing=0.1"
FACTS = {
    "torchvision/resnet50.IMAGENET1K_V1": (CE, "stated"),
    "torchvision/resnext50_32x4d.IMAGENET1K_V1": (CE, "stated"),
    "torchvision/wide_resnet50_2.IMAGENET1K_V1": (CE, "stated"),
    "torchvision/mobilenet_v2.IMAGENET1K_V1": (CE, "stated"),
    "torchvision/regnet_y_400mf.IMAGENET1K_V1": (CE, "stated"),
    "torchvision/vgg16_bn.IMAGENET1K_V1": (CE, "stated"),
    "torchvision/resnet50.IMAGENET1K_V2": (SMOOTHED, "stated"),
    "torchvision/convnext_tiny.IMAGENET1K_V1": (SMOOTHED, "stated"),
    "torchvision/swin_t.IMAGENET1K_V1": (SMOOTHED, "stated"),
    "torchvision/maxvit_t.IMAGENET1K_V1": (SMOOTHED, "stated"),
    "torchvision/efficientnet_v2_s.IMAGENET1K_V1": (SMOOTHED, "stated"),
    "torchvision/vit_l_16.IMAGENET1K_V1": (SMOOTHED, "stated"),
    "torchvision/vit_b_16.IMAGENET1K_V1": ("label-smoothing:smoothing=0.11", "stated"),
    "torchvision/vit_l_32.IMAGENET1K_V1": ("label-smoothing:smoothing=0.11", "stated"),
    "timm/resnet50.a1_in1k": (BCE, "stated"),
    "timm/resnet18.a3_in1k": (BCE, "stated"),
    "timm/resnet50.d_in1k": (BCE, "stated"),
    "timm/resnet50.a1h_in1k": (BCE, "likely"),
    "timm/resnet50.ra_in1k": (SMOOTHED, "likely"),
    "timm/resnet50.b1k_in1k": (SMOOTHED, "likely"),
    "timm/resnet50.c2_in1k": (SMOOTHED, "likely"),
    "timm/convnext_atto.d2_in1k": (BCE, "stated"),
    "timm/tf_efficientnet_b0.ns_jft_in1k": (SMOOTHED, "stated"),
    "timm/tf_efficientnet_lite0.in1k": (SMOOTHED, "stated"),
    "timm/deit_small_patch16_224.fb_in1k": (SMOOTHED, "stated"),
    "timm/deit3_small_patch16_224.fb_in1k": (BCE, "stated"),
    "timm/deit3_small_patch16_384.fb_in1k": (SMOOTHED, "stated"),
    "timm/deit3_small_patch16_224.fb_in22k_ft_in1k": (SMOOTHED, "stated"),
    "timm/vit_small_patch16_224.augreg_in1k": (BCE, "likely"),
    "timm/vit_small_patch16_224.augreg_in21k_ft_in1k": (CE, "stated"),
    "timm/vit_base_patch16_224.augreg_in21k": (BCE, "stated"),
    "timm/mixer_b16_224.goog_in21k": (BCE, "stated"),
    "timm/resnetv2_50x1_bit.goog_in21k_ft_in1k": (CE, "stated"),
    "timm/vit_base_patch16_siglip_224.webli": (BCE, "stated"),
    "timm/resnet18.fb_swsl_ig1b_ft_in1k": ("distilled", "stated"),
    "timm/deit_tiny_distilled_patch16_224.fb_in1k": ("distilled", "stated"),
    "timm/levit_128.fb_dist_in1k": ("distilled", "stated"),
    "timm/resnet50.something_new": ("unknown", "stated"),
    "transformers/facebook/deit-base-patch16-224": (SMOOTHED, "stated"),
    "transformers/facebook/deit-base-distilled-patch16-224": ("distilled", "stated"),
    "transformers/google/siglip-base-patch16-224": (BCE, "stated"),
    "transformers/google/vit-base-patch16-224": (CE, "stated"),
}


@pytest.mark.parametrize("name", FACTS)
def test_the_catalogue_has_the_published_recipes(name: str) -> None:
    known = look_up(name)
    assert known is not None
    assert (known.loss, known.confidence) == FACTS[name]
    assert known.evidence
    assert known.name == name


def test_every_loss_of_the_catalogue_exists_and_every_rule_can_be_reached() -> None:
    table = rules()
    assert len({rule.name for rule in table}) == len(table)
    for place, rule in enumerate(table):
        if rule.is_loss:
            parse(rule.loss)
        broader = [other.name for other in table[:place] if other.name.endswith("/*")]
        package = rule.name.partition("/")[0]
        assert f"{package}/*" not in broader, f"{rule.name} stands behind the rule for all others"


def test_rules_of_ones_own_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path))
    rule = '[[checkpoints]]\nname = "timm/resnet50.a1_*"\nloss = "poly:epsilon=2"\nevidence = "I did it"\n'
    (tmp_path / "checkpoints.toml").write_text(rule)
    known = look_up("timm:resnet50.a1_in1k")
    assert known is not None
    assert known.loss == "poly:epsilon=2"
    assert look_up("timm/resnet18.a1_in1k").loss == BCE  # type: ignore[union-attr]
    (tmp_path / "checkpoints.toml").write_text(rule + 'confidence = "sure"\n')
    with pytest.raises(ValueError, match="confidence is stated or likely"):
        look_up("timm/resnet18.a1_in1k")
    (tmp_path / "checkpoints.toml").write_text("[[checkpoint")
    with pytest.raises(ValueError, match=r"checkpoints\.toml: a catalogue holds"):
        look_up("timm/resnet18.a1_in1k")


class Published(nn.Sequential):
    """A network that tells its name as those of timm do."""

    def __init__(self, architecture: str, tag: str) -> None:
        super().__init__(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        self.pretrained_cfg = {"architecture": architecture, "tag": tag}


def test_auto_takes_the_loss_behind_the_tag_with_one_line_of_notice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = Published("resnet50", "a1_in1k")
    with caplog.at_level(logging.WARNING, "fenchel"):
        adapted = fenchel.adapt(network, trained_with="auto", method="conjugate")
    (record,) = caplog.records
    assert record.message.startswith("timm/resnet50.a1_in1k was trained with binary-cross-entropy")
    assert "\n" not in record.message
    assert adapted.settings.method.objective.loss == BinaryCrossEntropy()  # type: ignore[attr-defined]
    batch = torch.randn(16, 4)
    told = fenchel.adapt(network, trained_with=BinaryCrossEntropy(), method="conjugate")
    torch.testing.assert_close(adapted(batch), told(batch))


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Published("resnet18", "fb_swsl_ig1b_ft_in1k"), "is distilled .*Pass the one you want"),
        (Published("resnet18", "brand_new"), "is unknown .*no rule knows"),
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "Sequential does not"),
    ],
)
def test_auto_asks_where_it_does_not_know(network: nn.Module, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fenchel.adapt(network, trained_with="auto")


def test_auto_is_what_a_checkpoint_tells() -> None:
    opened = open_model("zoo:cifar10-resnet26-poly", trained_with="auto")
    assert opened.loss_spec.startswith("poly")
    assert opened.caution == ""
    adapted = fenchel.adapt("zoo:cifar10-resnet26-poly", trained_with="auto", method="conjugate")
    assert type(adapted.settings.method.objective.loss).__name__ == "PolyLoss"  # type: ignore[attr-defined]


def test_networks_of_timm_tell_their_names(optional_package: Callable[[str], ModuleType]) -> None:
    timm = optional_package("timm")
    network = timm.create_model("resnet18.a1_in1k", pretrained=False, num_classes=10)
    assert name_of(network) == "timm/resnet18.a1_in1k"
    wrapped = Preprocessed(network, Preprocessing((0.5,) * 3, (0.5,) * 3))
    assert name_of(wrapped) == "timm/resnet18.a1_in1k"
    opened = open_model("timm:resnet18.a1_in1k:classes=10", trained_with="auto")
    assert opened.loss_spec == BCE
    assert "A1" in opened.caution


def test_networks_of_transformers_tell_their_names(
    optional_package: Callable[[str], ModuleType],
) -> None:
    theirs = optional_package("transformers")
    small = {"hidden_sizes": [8], "depths": [1], "embedding_size": 8, "num_labels": 3}
    config = theirs.ResNetConfig(**small, layer_type="basic")
    assert name_of(theirs.ResNetForImageClassification(config)) is None
    config._name_or_path = "microsoft/resnet-50"
    assert (
        name_of(theirs.ResNetForImageClassification(config)) == "transformers/microsoft/resnet-50"
    )


def test_patterns_list_what_the_installed_packages_publish(
    optional_package: Callable[[str], ModuleType],
) -> None:
    optional_package("timm")
    found = {known.name: known.loss for known in matching("timm/resnet50.a*")}
    assert found["timm/resnet50.a2_in1k"] == BCE
    assert set(found) == {known.name for known in matching("resnet50.a*")}
    (alone,) = matching("transformers/openai/clip-vit-base-patch32")
    assert alone.loss == CE
    assert catalogue.matching("nothing*") == ()
