"""Encoders learned from images without labels, whose features are a geometry."""

from pollux.pretraining.augmentations import Augmentation
from pollux.pretraining.encoder import Encoder
from pollux.pretraining.files import load_encoder, save_encoder
from pollux.pretraining.loss import nt_xent
from pollux.pretraining.simclr import Pretrained, pretrain_simclr, stored_settings
from pollux.pretraining.trainer import Step

__all__ = [
    "Augmentation",
    "Encoder",
    "Pretrained",
    "Step",
    "load_encoder",
    "nt_xent",
    "pretrain_simclr",
    "save_encoder",
    "stored_settings",
]
