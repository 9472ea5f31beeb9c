"""Map the elements of a stream with a value that is carried from one to the next."""

from typing import Any, cast, final

from gristmill._base.trees.json_values import copy_value, decode_value, encode_value
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.nodes.stream_steps import ScanNode
from gristmill.errors import PlanTypeError
from gristmill.types import Element


@final
class ScanStage(StatefulStage):
    """Calls a function with the carried value and each element.

    The function gets a copy of lists, dicts and arrays, so that it may change them in place: the
    values before remain as they were, for the states there.
    """

    def __init__(self, node: ScanNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._carried = node.initial

    def first_state(self) -> Any:
        return [self._buffer.stage.start, self._encode(self._node.initial)]

    def restore(self, state: Any) -> None:
        below, carried = state
        self._carried = decode_value(carried)
        self._buffer.seek(below)

    def pull(self) -> BlockResult | None:
        if not self._buffer.fill():
            error = self._buffer.error
            return None if error is None else self.emit([], lambda _: None, error)
        mark = self._buffer.mark()
        values = [self._carried]
        rows: list[Element] = []
        error: BaseException | None = None
        for element in self._buffer.take(self._buffer.count):
            try:
                carried, output = self._call(values[-1], element)
            except Exception as raised:
                add_note_once(raised, f"In {self._node.label}, added at {self._node.site}.")
                error = raised
                break
            values.append(carried)
            rows.append(output)
        unwritable = self._check(values[-1]) if rows else None
        if unwritable is not None:  # raised here, not when a state is requested
            error = unwritable
            rows.pop()
        self._carried = values[-1]
        return self.emit(
            rows, lambda count: [mark.after(count), self._encode(values[count])], error
        )

    def _call(self, carried: Any, element: Element) -> tuple[Any, Element]:
        result = self._node.function(copy_value(carried), element)
        if type(cast("object", result)) is not tuple or len(result) != 2:
            raise PlanTypeError(
                f"The function of `scan` must return a pair, the next carried value and an output, "
                f"got {result!r:.100}."
            )
        return result

    def _check(self, carried: Any) -> Exception | None:
        """Return the error of a carried value that no checkpoint can contain."""
        try:
            self._encode(carried)
        except PlanTypeError as error:
            add_note_once(error, f"In {self._node.label}, added at {self._node.site}.")
            return error
        return None

    def _encode(self, carried: Any) -> Any:
        return encode_value(carried, name="The carried value of `scan`")
