"""Training: batches, steps, the loop, its checkpoints, restarts, evaluation, callbacks."""

from pollux.training.batches import Batch, Batches, RowBatches
from pollux.training.callbacks import Callback, Epoch, Interruptible, ProgressBar, TensorBoard
from pollux.training.checkpoints import Checkpoints, CheckpointWarning, Stopped
from pollux.training.loop import (
    SCHEDULES,
    History,
    NanGuard,
    NumericalWarning,
    TrainingResult,
    TrainingState,
    train,
)
from pollux.training.problem import Evaluation, evaluate, log_probabilities
from pollux.training.restarts import BestRestart, Round, train_one_epoch, train_restarts
from pollux.training.session import Session
from pollux.training.starting import initial_labels, learn_labels, start
from pollux.training.steps import (
    OPTIMISERS,
    AutogradStep,
    ClusterMetrics,
    CompiledStep,
    EpochMetrics,
    LabelStep,
    NotFiniteError,
    OptimiserStep,
    Step,
    make_optimiser,
)
from pollux.training.trainable import DenseModels, SingleModel, StackedModels, Trainable

__all__ = [
    "OPTIMISERS",
    "SCHEDULES",
    "AutogradStep",
    "Batch",
    "Batches",
    "BestRestart",
    "Callback",
    "CheckpointWarning",
    "Checkpoints",
    "ClusterMetrics",
    "CompiledStep",
    "DenseModels",
    "Epoch",
    "EpochMetrics",
    "Evaluation",
    "History",
    "Interruptible",
    "LabelStep",
    "NanGuard",
    "NotFiniteError",
    "NumericalWarning",
    "OptimiserStep",
    "ProgressBar",
    "Round",
    "RowBatches",
    "Session",
    "SingleModel",
    "StackedModels",
    "Step",
    "Stopped",
    "TensorBoard",
    "Trainable",
    "TrainingResult",
    "TrainingState",
    "evaluate",
    "initial_labels",
    "learn_labels",
    "log_probabilities",
    "make_optimiser",
    "start",
    "train",
    "train_one_epoch",
    "train_restarts",
]
