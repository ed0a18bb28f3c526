"""Augmentation of training rows, each draw a pure function of (seed, epoch, index of the row in its epoch).

from tfcore.augment.config import AugmentConfig          # TensorFlow-free: what pipeline.yaml says
from tfcore.augment.rows import Augment                  # the graph
"""
