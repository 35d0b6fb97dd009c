"""Training: batches, steps, the loop, its checkpoints, restarts, evaluation, callbacks."""

from pollux.training.batches import Batch, Batches, RowBatches
from pollux.training.callbacks import Callback, Epoch, Interruptible, ProgressBar, TensorBoard
from pollux.training.checkpoints import Checkpoints, CheckpointWarning, Stopped
from pollux.training.evaluation import Evaluation, evaluate, evaluate_batches, log_probabilities
from pollux.training.loop import (
    SCHEDULES,
    EpochMetrics,
    History,
    NanGuard,
    NotFiniteError,
    NumericalWarning,
    Patience,
    TrainingResult,
    TrainingState,
    train,
)
from pollux.training.restarts import (
    BestRestart,
    RandomStreams,
    Round,
    TrainingOptions,
    evaluate_finite,
    train_restarts,
)
from pollux.training.starting import initial_labels, learn_labels
from pollux.training.steps import (
    OPTIMISERS,
    AutogradStep,
    ClosedFormStep,
    LabelStep,
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
    "ClosedFormStep",
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
    "Patience",
    "ProgressBar",
    "RandomStreams",
    "Round",
    "RowBatches",
    "SingleModel",
    "StackedModels",
    "Step",
    "Stopped",
    "TensorBoard",
    "Trainable",
    "TrainingOptions",
    "TrainingResult",
    "TrainingState",
    "evaluate",
    "evaluate_batches",
    "evaluate_finite",
    "initial_labels",
    "learn_labels",
    "log_probabilities",
    "make_optimiser",
    "train",
    "train_restarts",
]
