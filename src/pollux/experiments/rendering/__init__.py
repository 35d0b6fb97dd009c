"""What was measured, for people: in the terminal, as Markdown and as a page."""

from pollux.experiments.rendering.account import Account, Picture, account_of
from pollux.experiments.rendering.markdown import markdown
from pollux.experiments.rendering.page import page
from pollux.experiments.rendering.terminal import show
from pollux.experiments.rendering.writing import publish, with_pictures, write

__all__ = ["Account", "Picture", "account_of", "markdown", "page", "publish", "show", "with_pictures", "write"]
