"""A directive for the site: ``.. commands::`` shows every command with its options, as the parser declares them."""

from __future__ import annotations

import argparse
import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

from pollux.app import cli


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, those of commands within commands too, by what is typed."""
    found: dict[str, argparse.ArgumentParser] = {}

    def walk(parser: argparse.ArgumentParser) -> None:
        found[parser.prog] = parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for child in action.choices.values():
                    walk(child)

    for name in cli.COMMANDS:
        walk(cli.parser(name).chosen)
    return found


def usage(parser: argparse.ArgumentParser) -> str:
    """How a command is called, in lines that fit a page."""
    formatter = argparse.HelpFormatter(prog=parser.prog, width=80)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help().rstrip()


def paragraph(text: str) -> nodes.paragraph:
    """Options are code, which no line breaks after a dash."""
    parts = re.split(r"(?<![\w-])(--[a-z][\w-]*)", text)
    return nodes.paragraph(
        "", "", *(nodes.literal("", part) if part.startswith("--") else nodes.Text(part) for part in parts if part)
    )


class Commands(Directive):
    """All commands, a section each."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        return [self.section(name, parser) for name, parser in commands().items()]

    def section(self, name: str, parser: argparse.ArgumentParser) -> nodes.section:
        """What a command does, how it is called and each of its options."""
        section = nodes.section(ids=[nodes.make_id(name)], names=[name])
        section += nodes.title("", name)
        if parser.description:
            section += paragraph(parser.description)
        section += nodes.literal_block("", usage(parser), language="text")
        formatter = parser._get_formatter()
        for group in parser._action_groups:
            shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
            if not shown:
                continue
            section += nodes.rubric("", (group.title or "").capitalize())
            entries = nodes.definition_list()
            for action in shown:
                if isinstance(action, argparse._SubParsersAction):
                    continue
                entry = nodes.definition_list_item()
                entry += nodes.term("", "", nodes.literal("", formatter._format_action_invocation(action)))
                entry += nodes.definition("", paragraph(formatter._expand_help(action)))
                entries += entry
            section += entries
        return section


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
