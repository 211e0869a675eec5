"""Networks by name, weights from anywhere, and checkpoints that know how they were trained.

Every image model takes images in [0, 1] and normalises them itself: `model.preprocessing`.
"""

from fenchel.models import (  # importing them registers their models
    efficientnet_lite,
    mobilenet,
    resnet,
    resnet_keras,
    small,
    vit,
)
from fenchel.models.checkpoint import Checkpoint, Metadata, load_checkpoint, read_metadata
from fenchel.models.efficientnet_lite import EfficientNetLite0
from fenchel.models.feeding import ModelFailure, explain_failure, suspicious_inputs
from fenchel.models.mobilenet import MobileNetV2
from fenchel.models.opening import open_model
from fenchel.models.preprocessing import Preprocessed, Preprocessing
from fenchel.models.pretrained.registry import PRETRAINED
from fenchel.models.registry import MODELS, build, factory
from fenchel.models.resnet import (
    ResNet,
    resnet18,
    resnet18_small,
    resnet26,
    resnet26_groupnorm,
    resnet26_wide,
    resnet50,
    resnet50_small,
)
from fenchel.models.resnet_keras import resnet50_keras
from fenchel.models.small import DigitNetwork, Linear
from fenchel.models.vit import VisionTransformer
from fenchel.models.weights import load_weights, read_state_dict

__all__ = [
    "MODELS",
    "PRETRAINED",
    "Checkpoint",
    "DigitNetwork",
    "EfficientNetLite0",
    "Linear",
    "Metadata",
    "MobileNetV2",
    "ModelFailure",
    "Preprocessed",
    "Preprocessing",
    "ResNet",
    "VisionTransformer",
    "build",
    "efficientnet_lite",
    "explain_failure",
    "factory",
    "load_checkpoint",
    "load_weights",
    "mobilenet",
    "open_model",
    "read_metadata",
    "read_state_dict",
    "resnet",
    "resnet18",
    "resnet18_small",
    "resnet26",
    "resnet26_groupnorm",
    "resnet26_wide",
    "resnet50",
    "resnet50_keras",
    "resnet50_small",
    "resnet_keras",
    "small",
    "suspicious_inputs",
    "vit",
]
