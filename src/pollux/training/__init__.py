"""Training: batches, the loop, restarts, callbacks."""

from pollux.training.batches import Batch, Batches
from pollux.training.callbacks import Callback, Epoch, Interruptible, ProgressBar, TensorBoard
from pollux.training.evaluation import Evaluation, evaluate, log_probabilities
from pollux.training.loop import History, NotFiniteError, NumericalWarning, Patience, Trained, train
from pollux.training.optimisers import OPTIMISERS, make_optimiser
from pollux.training.restarts import Fitted, Recipe, evaluate_sound, train_restarts
from pollux.training.steps import Step, Trainable, taped_step
from pollux.training.trainable import SingleModel, StackedModels

__all__ = [
    "OPTIMISERS",
    "Batch",
    "Batches",
    "Callback",
    "Epoch",
    "Evaluation",
    "Fitted",
    "History",
    "Interruptible",
    "NotFiniteError",
    "NumericalWarning",
    "Patience",
    "ProgressBar",
    "Recipe",
    "SingleModel",
    "StackedModels",
    "Step",
    "TensorBoard",
    "Trainable",
    "Trained",
    "evaluate",
    "evaluate_sound",
    "log_probabilities",
    "make_optimiser",
    "taped_step",
    "train",
    "train_restarts",
]
