"""What the documentation site has beside the pages of this folder: hooks of MkDocs.

* Pages of the repository's root, at their place in the site.
* The references of HTTP and of the command line, made from docs/openapi.json and from the
  commands themselves, and the examples, whole.
* Links to files that are no page lead to the page that shows them, or become plain names.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
HOME = "index.md"
FROM_ROOT = {
    HOME: "README.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "benchmarks/README.md": "benchmarks/README.md",
}
"""Page of the site -> file of the repository."""

HTTP, COMMANDS, EXAMPLES = "reference/http.md", "reference/commands.md", "reference/examples.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are no files of this folder."""
    made = {page: (ROOT / file).read_text("utf-8") for page, file in FROM_ROOT.items()}
    made |= {HTTP: http_reference(), COMMANDS: command_reference(), EXAMPLES: examples()}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where things are in the site."""
    here = page.file.src_uri
    source = FROM_ROOT.get(here, f"docs/{here}")

    def moved(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        path, _, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        found = page_of(place, files)
        if found is None:
            return text if text.startswith("`") else f"`{text}`"
        if place.startswith("examples/"):
            anchor = anchor_of(place)
        there = posixpath.relpath(found, posixpath.dirname(here) or ".")
        return f"[{text}]({there}{'#' + anchor if anchor else ''})"

    # Not inside code, and not the pictures' own brackets.
    parts = re.split(r"(?ms)(^```.*?^```$|`[^`\n]*`(?!\]))", markdown)
    parts[::2] = [re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", moved, part) for part in parts[::2]]
    text = "".join(parts)
    if source == "README.md":
        text = re.sub(r'(srcset="|src="|\]\()docs/', r"\1", text)
    return text


def page_of(place: str, files: Files) -> str | None:
    """The page of the site that shows a file of the repository; None where none does."""
    for page, file in FROM_ROOT.items():
        if file == place:
            return page
    if place.startswith("examples/") and (ROOT / place).suffix == ".py":
        return EXAMPLES
    within = place.removeprefix("docs/")
    if place.startswith("docs/") and files.get_file_from_path(within) is not None:
        return within
    return None


def anchor_of(place: str) -> str:
    """Where the page of examples shows a file, as its headings are named."""
    return re.sub(r"[^\w\- ]", "", posixpath.basename(place)).lower()


def examples() -> str:
    """Every example, whole."""
    shown = [
        f"## {path.name}\n\n```python\n{path.read_text('utf-8').strip()}\n```\n"
        for path in sorted((ROOT / "examples").glob("*.py"))
    ]
    return "\n".join(["# Examples\n\nEach of these runs, and is run by a test.\n", *shown])


# HTTP ---------------------------------------------------------------------------


def http_reference() -> str:
    """Every route, from the OpenAPI document."""
    document = json.loads((ROOT / "docs" / "openapi.json").read_text("utf-8"))
    groups: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            told = _operation(f"{method.upper()} {path}", operation, document)
            groups.setdefault(operation["tags"][0], []).append(told)
    parts = [
        "# Routes\n\nMade from the OpenAPI document that a service has at `/openapi.json`; "
        "[the page on HTTP](../http.md) explains them.\n"
    ]
    said = {tag["name"]: tag["description"] for tag in document["tags"]}
    for group, operations in groups.items():
        parts += [f"## {group.capitalize()}\n\n{said.get(group, '')}\n", *operations]
    return "\n".join(parts)


def _operation(where: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    lines = [f"### `{where}`", "", f"**{operation['summary']}** {operation.get('description', '')}"]
    rows = [
        (f"`{one['name']}`", one["in"], _type(one["schema"], document), one.get("description", ""))
        for one in operation.get("parameters", [])
    ]
    if rows:
        lines += ["", *_table(("parameter", "in", "type", "says"), rows)]
    for form, content in operation.get("requestBody", {}).get("content", {}).items():
        lines += ["", f"Body, `{form}`: {_said(content['schema'], document)}"]
        fields = _fields(content["schema"], document)
        lines += ["", *_table(("field", "type", "says"), fields)] if fields else []
        if "example" in content:
            lines += ["", "```json", json.dumps(content["example"]), "```"]
    rows = []
    for status, response in operation["responses"].items():
        names = ", ".join(f"`{form}`" for form in response.get("content", {}))
        rows.append((status, response["description"], names))
    lines += ["", *_table(("status", "means", "forms"), rows)]
    answer = operation["responses"].get("200") or operation["responses"].get("202") or {}
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    if fields := _fields(schema, document):
        lines += ["", "Answer:", "", *_table(("field", "type", "says"), fields)]
    return "\n".join(lines) + "\n"


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].split("/")[-1]]
        return found
    return schema


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> list[tuple[str, str, str]]:
    properties = _resolved(schema, document).get("properties", {})
    return [
        (f"`{name}`", _type(one, document), _said(one, document))
        for name, one in properties.items()
    ]


def _said(schema: dict[str, Any], document: dict[str, Any]) -> str:
    return str(schema.get("description") or _resolved(schema, document).get("description", ""))


def _type(schema: dict[str, Any], document: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"].split("/")[-1])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one, document) for one in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}), document)}"
    return str(schema.get("type", "anything"))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    def line(cells: tuple[str, ...]) -> str:
        return (
            "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
        )

    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


# The command line ---------------------------------------------------------------


def command_reference() -> str:
    """Every command with its arguments and options, from the commands themselves."""
    # Help may depend on these, and a page must not depend on who builds it.
    for name in [name for name in os.environ if name.upper().startswith("GMR_")]:
        del os.environ[name]
    from clients.commands.cli import COMMANDS as LINES
    from clients.commands.cli import load

    parts = ["# Commands\n\nMade from the commands; `gmr COMMAND --help` says the same.\n"]
    for name, (_, line) in LINES.items():
        parts += [_command(f"gmr {name}", load(name), line)]
    return "\n".join(parts)


def _command(name: str, command: Any, line: str) -> str:
    lines = [f"## `{name}`", "", _plain(command.help or line)]
    lines += ["", *_parameters(command)]
    for inner, one in getattr(command, "commands", {}).items():
        lines += ["", f"### `{name} {inner}`", "", _plain(one.help or ""), "", *_parameters(one)]
    return "\n".join(lines) + "\n"


def _parameters(command: Any) -> list[str]:
    rows = []
    for parameter in command.params:
        options = [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "argument":
            options = [parameter.metavar or parameter.name.upper()]
        if getattr(parameter, "hidden", False) or options == ["--help"]:
            continue
        shown = ", ".join(f"`{option}`" for option in options)
        default = parameter.default
        told = default is not None and not callable(default) and default not in ((), [], False, "")
        rows.append(
            (shown, _plain(getattr(parameter, "help", "") or ""), f"`{default}`" if told else "")
        )
    return _table(("option", "says", "default"), rows) if rows else []


def _plain(text: str) -> str:
    """Help without the marks of colour."""
    return re.sub(r"\[/?[a-z ]+\]", "", text).replace("<", "&lt;").strip()
