"""The figure of a recipe: its stacks and what stands below and above them."""

from sublayer.config.architecture.stacks import StackShape, stacks
from sublayer.config.fields.messages import show
from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolved import ResolvedModel
from sublayer.counts import count
from sublayer.diagram.blocks import draw_block
from sublayer.diagram.ends import draw_embeddings, draw_final_norm, draw_heads, layer_loss
from sublayer.diagram.figure import Column, Figure


def describe(loaded: LoadedRecipe) -> Figure:
    """Return what the diagram of a recipe shows, from its settings alone.

    The rows of the embedding matrix are V where the tokenizer says how many there are.
    """
    recipe = loaded.recipe
    n_rows = recipe.model.vocab_size
    model = resolve_model(recipe.model, vocab_size=n_rows or 1, context=recipe.data.context)
    vocabulary = "V" if n_rows is None else f"{n_rows:,}"
    shapes = stacks(model)
    columns = tuple(_column(recipe, model, shape, shapes, vocabulary) for shape in shapes)
    return Figure(loaded.name, _title(loaded), _sizes(model, shapes), columns)


def _title(loaded: LoadedRecipe) -> str:
    """Return the recipe's title, or what was changed of it: the title may be true no more."""
    changed = []
    for field, origin in loaded.origins.items():
        table, _, name = field.partition(".")
        if origin == "command line" and table in ("model", "objective"):
            value = getattr(getattr(loaded.recipe, table), name)
            changed.append(f"{field} = {value if isinstance(value, str) else show(value)}")
    return f"with {', '.join(changed)}" if changed else loaded.recipe.title


def _column(
    recipe: Recipe,
    model: ResolvedModel,
    shape: StackShape,
    shapes: tuple[StackShape, ...],
    vocabulary: str,
) -> Column:
    is_one_of_two = len(shapes) > 1
    is_last = shape is shapes[-1]
    reads = recipe.objective.reads()
    if is_one_of_two and is_last:
        reads = "what it has written so far"
    heads = draw_heads(model, recipe.objective, vocabulary=vocabulary) if is_last else ()
    return Column(
        name=shape.name.capitalize() if is_one_of_two else "",
        reads=reads,
        below=draw_embeddings(model, vocabulary=vocabulary, is_shared=is_one_of_two),
        block=draw_block(model, shape, layer_loss(recipe.objective) if is_last else None),
        above=draw_final_norm(model),
        heads=heads,
        feeds_memory=shape.feeds_memory,
    )


def _sizes(model: ResolvedModel, shapes: tuple[StackShape, ...]) -> str:
    layers = count(shapes[0].n_layers, "layer")
    if len(shapes) > 1:
        layers = f"{' + '.join(str(shape.n_layers) for shape in shapes)} layers"
    parts = [f"{model.kind}, {layers}", f"d_model {model.d_model:,}"]
    entries = [entry for shape in shapes for entry in shape.block]
    if any(entry.ffn is not None for entry in entries):
        parts.append(f"d_ff {model.d_ff:,}")
    if any(entry.kind.attends_to != "nothing" for entry in entries):
        parts.append(f"{count(model.n_heads, 'head')} of {model.d_head}")
    if model.d_embed != model.d_model:
        parts.append(f"d_embed {model.d_embed:,}")
    return ", ".join(parts)
