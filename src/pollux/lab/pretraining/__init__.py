"""Encoders learned from images without labels, whose features can be used as a geometry."""

from pollux.embedding.image_encoder import ImageEncoder, load_encoder, save_encoder
from pollux.lab.pretraining.augmentations import Augmentation
from pollux.lab.pretraining.simclr import Pretrained, nt_xent, pretrain_simclr, stored_settings

__all__ = [
    "Augmentation",
    "ImageEncoder",
    "Pretrained",
    "load_encoder",
    "nt_xent",
    "pretrain_simclr",
    "save_encoder",
    "stored_settings",
]
