"""What was measured, for people: in the terminal, as Markdown and as a page."""

from pollux.lab.experiments.rendering.account import Account, Picture, account_of
from pollux.lab.experiments.rendering.markdown import markdown
from pollux.lab.experiments.rendering.page import page
from pollux.lab.experiments.rendering.terminal import show
from pollux.lab.experiments.rendering.writing import publish, with_pictures, write

__all__ = ["Account", "Picture", "account_of", "markdown", "page", "publish", "show", "with_pictures", "write"]
