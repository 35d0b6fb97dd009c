"""Training: batches, the loop, its checkpoints, restarts, callbacks."""

from pollux.training.batches import Batch, Batches, RowBatches
from pollux.training.callbacks import Callback, Epoch, Interruptible, ProgressBar, TensorBoard
from pollux.training.checkpoints import Checkpoints, CheckpointWarning, Stopped
from pollux.training.evaluation import Evaluation, evaluate, evaluate_batches, log_probabilities
from pollux.training.loop import SCHEDULES, TrainingResult, train
from pollux.training.optimisers import OPTIMISERS, make_optimiser
from pollux.training.restarts import BestRestart, RandomStreams, Round, StepOptions, evaluate_finite, train_restarts
from pollux.training.state import History, NotFiniteError, NumericalWarning, Patience
from pollux.training.steps import AutogradStep, ClosedFormStep, Step, Trainable
from pollux.training.trainable import SingleModel, StackedModels
from pollux.training.warm import learn_labels

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
    "Epoch",
    "Evaluation",
    "History",
    "Interruptible",
    "NotFiniteError",
    "NumericalWarning",
    "Patience",
    "ProgressBar",
    "RandomStreams",
    "Round",
    "RowBatches",
    "SingleModel",
    "StackedModels",
    "Step",
    "StepOptions",
    "Stopped",
    "TensorBoard",
    "Trainable",
    "TrainingResult",
    "evaluate",
    "evaluate_batches",
    "evaluate_finite",
    "learn_labels",
    "log_probabilities",
    "make_optimiser",
    "train",
    "train_restarts",
]
