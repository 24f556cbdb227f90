"""Copying a launch graph task by task, with other ops, kernels or calls."""

from __future__ import annotations

import attrs

from perfc.ir import LaunchGraph


@attrs.define(eq=False)
class LaunchCopy:
    """A launch graph that is made from the tasks of another.

    Attributes:
        source: The graph whose tasks are copied.
        result: The new graph; resources keep their numbers.
        moved: New number of each task that was copied, -1 of one that was skipped.

    """

    source: LaunchGraph
    result: LaunchGraph = attrs.field(init=False)
    moved: dict[int, int] = attrs.field(factory=dict[int, int], init=False)

    def __attrs_post_init__(self) -> None:
        """Begin with the resources of the source."""
        self.result = LaunchGraph(self.source.name)
        self.result.resources += self.source.resources

    def skip(self, task: int) -> None:
        """Leave a task out; others no longer wait for it."""
        self.moved[task] = -1

    def add(
        self,
        task: int,
        *,
        op: int | None = None,
        issue: int | None = None,
        kernel: int | None = None,
    ) -> None:
        """Copy one task, to the op that was added last unless *op* is given.

        The call that issues it is the copy of its own, unless *issue* is given; the
        number of its kernel stays, unless *kernel* is given.
        """
        source = self.source
        after = [self.moved[other] for other in source.after[task]]
        if issue is None:
            before = source.issue[task]
            issue = -1 if before < 0 else self.moved[before]
        self.moved[task] = self.result.task(
            source.kind[task],
            source.resource[task],
            op=len(self.result.ops) - 1 if op is None else op,
            kernel=source.kernel[task] if kernel is None else kernel,
            issue=issue,
            after=tuple([other for other in after if other >= 0]),
            detail=source.detail[task],
            group=source.group[task],
            stated_s=source.stated_s[task],
        )
