"""
Watch a training
================

Each epoch reports the objective, the clusters in use and the entropy of the predictions. A callback receives them
after each epoch, and may stop the training.
"""

from sklearn.datasets import load_digits

from pollux import GeminiClustering
from pollux.report import plot_training

X = load_digits().data / 16
clustering = GeminiClustering(
    12,
    model="mlp",
    objective="mmd_ovo",
    geometry="rbf",
    max_epochs=60,
    random_state=0,
    callbacks=[lambda epoch: print(epoch) if epoch.number % 20 == 0 else None],
)
clustering.fit(X)
figure = plot_training(clustering.history_)
