"""Training: batches, the loop, its checkpoints, restarts, callbacks."""

from pollux.training.batches import Batch, Batches, RowBatches
from pollux.training.callbacks import Callback, Epoch, Interruptible, ProgressBar, TensorBoard
from pollux.training.checkpoints import Checkpoints, CheckpointWarning, Stopped
from pollux.training.course import History, NotFiniteError, NumericalWarning, Patience
from pollux.training.evaluation import Evaluation, evaluate, evaluate_batches, log_probabilities
from pollux.training.loop import SCHEDULES, Trained, train
from pollux.training.optimisers import OPTIMISERS, make_optimiser
from pollux.training.restarts import Fitted, Randomness, Recipe, Round, evaluate_sound, train_restarts
from pollux.training.steps import Step, TapedStep, TapelessStep, Trainable
from pollux.training.trainable import SingleModel, StackedModels
from pollux.training.warm import learn_labels

__all__ = [
    "OPTIMISERS",
    "SCHEDULES",
    "Batch",
    "Batches",
    "Callback",
    "CheckpointWarning",
    "Checkpoints",
    "Epoch",
    "Evaluation",
    "Fitted",
    "History",
    "Interruptible",
    "NotFiniteError",
    "NumericalWarning",
    "Patience",
    "ProgressBar",
    "Randomness",
    "Recipe",
    "Round",
    "RowBatches",
    "SingleModel",
    "StackedModels",
    "Step",
    "Stopped",
    "TapedStep",
    "TapelessStep",
    "TensorBoard",
    "Trainable",
    "Trained",
    "evaluate",
    "evaluate_batches",
    "evaluate_sound",
    "learn_labels",
    "log_probabilities",
    "make_optimiser",
    "train",
    "train_restarts",
]
