"""Encoders learned from images without labels, whose features are a geometry."""

from pollux.lab.pretraining.augmentations import Augmentation
from pollux.lab.pretraining.encoder import Encoder
from pollux.lab.pretraining.files import load_encoder, save_encoder
from pollux.lab.pretraining.loss import nt_xent
from pollux.lab.pretraining.simclr import Pretrained, pretrain_simclr, stored_settings
from pollux.lab.pretraining.trainer import Step

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
