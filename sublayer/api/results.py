"""Results of the functions: the command's JSON object as a dict, which shows itself."""

from collections.abc import Sequence
from typing import Any

from sublayer.api.html import figure, page, prose, rows_of, table
from sublayer.commands.plan.rendering import plan_cells, plan_lines
from sublayer.commands.shared.base import Answer


class Result(dict[str, Any]):
    """What a command found, as ``--json`` prints it; its ``repr`` is what the command prints."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.result)
        self._text = answer.text

    def __repr__(self) -> str:
        return self._text

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return prose(self._text)


class Scores(Result):
    """How well a model did on a text: measures by name, and what was scored."""

    def _repr_html_(self) -> str:
        measures = {name: value for name, value in self.items() if isinstance(value, int | float)}
        return page(table(["measure", "value"], rows_of(measures)))


class Plan(Result):
    """What each arm has and takes, before anything is spent."""

    def _repr_html_(self) -> str:
        from sublayer.reporting.terminal import planned_cells

        headings, cells = plan_cells(self["arms"])
        lines = [*plan_lines(self), *self["notes"]]
        beyond, rows = planned_cells(self["arms"])
        budgets = table(beyond, rows) if rows else ""
        return page(table(headings, cells), budgets, "".join(map(prose, lines)))


class Texts(Result):
    """Continuations of a prompt: ``texts`` without it; as a string, the prompt and the first."""

    @property
    def texts(self) -> list[str]:
        """The continuations, without the prompt."""
        return list(self["texts"])

    def __str__(self) -> str:
        return f"{self['prompt']}{self.texts[0]}"

    def __repr__(self) -> str:
        if len(self.texts) == 1:
            return str(self)
        lines = [f"--- {number}\n{text}" for number, text in enumerate(self.texts, start=1)]
        return "\n".join([self["prompt"], *lines])

    def _repr_html_(self) -> str:
        return page(*(prose(text, before=self["prompt"]) for text in self.texts))


class Completions(Result):
    """Texts with their gaps filled, the best first; as a string, the first."""

    @property
    def texts(self) -> list[str]:
        """The completed texts."""
        return [each["text"] for each in self["completions"]]

    def __str__(self) -> str:
        return self.texts[0]

    def __repr__(self) -> str:
        return "\n".join(self.texts)

    def _repr_html_(self) -> str:
        rows = [[each["text"], f"{each['score']:.4f}"] for each in self["completions"]]
        return page(table(["text", "score"], rows))


class Fillings(Result):
    """The likeliest fillings of each mask of a text; ``texts`` has the text with those of one."""

    @property
    def texts(self) -> list[str]:
        """The text with each filling of its first mask, the likeliest first."""
        return [each["completed"] for each in self["masks"][0]]

    def _repr_html_(self) -> str:
        shown = []
        for mask in self["masks"]:
            rows = [[each["text"], f"{each['probability']:.4f}"] for each in mask]
            shown.append(table(["filling", "probability"], rows))
        return page(*shown)


class Translations(Result):
    """Translations of lines; ``texts`` has the best of each line."""

    def __init__(self, answer: Answer, sources: Sequence[str]) -> None:
        super().__init__(answer)
        self._sources = list(sources)

    @property
    def texts(self) -> list[str]:
        """The best translation of each line; empty where the line was too long."""
        found = []
        for line in self["translations"]:
            best = line["translations"]
            found.append(best[0]["text"] if best else "")
        return found

    def __str__(self) -> str:
        return "\n".join(self.texts)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = list(zip(self._sources, self.texts, strict=True))
        return page(table(["source", "translation"], rows))


class Comparison(Result):
    """A comparison: arms, differences with intervals and verdicts, and the report's path."""

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each arm that is compared, by the arm's name."""
        return {each["arm"]: each["verdict"] for each in self["differences"]}

    def _repr_html_(self) -> str:
        from sublayer.api.plots import draw_comparison

        rows = []
        for each in self["differences"]:
            numbers = (each["mean"], each["low"], each["high"])
            cells = ["–" if number is None else f"{number:+.4f}" for number in numbers]
            rows.append([each["arm"], *cells, each["verdict"]])
        interval = f"{self['confidence']:.0%} CI"
        headings = [f"against {self['baseline']}", "difference", f"{interval} from", "to"]
        caption = f"{self['metric']} on {self['scored_on']}, matched by {self['match']}"
        shown = table([*headings, "verdict"], rows)
        notes = "".join(prose(note) for note in self["notes"])
        return page(
            prose(self["headline"]), prose(caption), shown, figure(draw_comparison(self)), notes
        )


class Listing(Result):
    """The recipes and studies that there are."""

    def _repr_html_(self) -> str:
        recipes = [[each["name"], each["title"], each["cost"]] for each in self["recipes"]]
        studies = [[each["name"], each["title"]] for each in self["studies"]]
        return page(
            table(["recipe", "what it is", "cost"], recipes),
            table(["study", "what it compares"], studies),
        )


class Rows(Result):
    """What was run: a row for each run, comparison and imported model."""

    def _repr_html_(self) -> str:
        rows = [
            [each["folder"], each["kind"], each["state"], each["headline"] or each["title"]]
            for each in self["runs"]
        ]
        return page(table(["folder", "kind", "state", "what it is"], rows))


class Diagram(Result):
    """The drawn architecture of a recipe; ``svg`` is the picture."""

    def __init__(self, answer: Answer, svg: str) -> None:
        super().__init__(answer)
        self.svg = svg
        """The picture, as the text of an SVG file."""

    def _repr_html_(self) -> str:
        return figure(self.svg)
