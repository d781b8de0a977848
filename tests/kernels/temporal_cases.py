"""What every executor does with ops that remember: a test class takes these over and gives its ``device`` as a fixture.

Each frame of a sequence is compared with oracles that have seen the frames before.
"""

from __future__ import annotations

import numpy as np
import pytest

from kernels.chain import Chain, Step
from kernels.device import Device
from kernels.formats import BGR8, FORMATS, GRAY8, PixelFormat
from kernels.image import ImageSpec, ImageView
from kernels.plan import slot_source_spec
from kernels.registry import find_op
from tests.kernels.cases import Paint, SourceCase, check_exact, check_sequence, paint_constant, paint_scene
from tests.kernels.oracles_temporal import TEMPORAL_ORACLES
from tests.kernels.strategies import extreme_steps

# Where a tile, a row of threads, a word or the picture ends.
SEQUENCE_SIZES = ((1, 1), (17, 9), (129, 33), (64, 48), (385, 17))

# The same op twice; behind a stencil, before one, between two; behind and before a gather; with other channels between.
SEQUENCES = (
    "temporal_denoise(strength={s}, threshold={t}) | temporal_denoise(strength=0.5) | frame_difference",
    "sobel | frame_difference(gain={s}) | gamma(gamma=1.5)",
    "frame_difference(gain={s}) | invert | gaussian_blur(ksize=5)",
    "gaussian_blur(ksize=3) | temporal_denoise(strength={s}, threshold={t}) | sharpen | frame_difference | sobel",
    "flip | motion_heatmap(opacity={s}, threshold={t}) | motion_heatmap(decay={s}) | flip",
    "gamma | background_subtraction(threshold=2) | open(ksize=3) | motion_heatmap(gain={s}) | grayscale",
    "background_subtraction(learning_rate=0.1, threshold=1.5) | invert | temporal_denoise(strength={s})",
    "motion_heatmap | background_subtraction(learning_rate=0.02) | sobel | background_subtraction(threshold=3)",
)


def scenes(spec: ImageSpec, texts: list[str]) -> list[tuple[Chain | str, Paint]]:
    """The next frame of a scene for each text of a chain."""
    return [(text, paint_scene(spec.width, number)) for number, text in enumerate(texts)]


class TemporalCases:
    @pytest.mark.parametrize("name", TEMPORAL_ORACLES)
    @pytest.mark.parametrize("format", [BGR8, GRAY8], ids=str)
    def test_what_is_remembered_outlives_changes_of_parameters(
        self, device: Device, format: PixelFormat, name: str
    ) -> None:
        """All extreme values in one sequence, each set for two frames between two of the usual."""
        for size in SEQUENCE_SIZES:
            spec = SourceCase(format, *size, 13, 3).spec()
            steps = [step for step in extreme_steps() if step.op.name == name]
            usual = Step(steps[0].op, steps[0].op.Params())
            chains = [Chain((step,)) for extreme in steps for step in (usual, extreme, extreme, usual)]
            check_sequence(device, spec, [(c, paint_scene(spec.width, n)) for n, c in enumerate(chains)])

    @pytest.mark.parametrize("name", TEMPORAL_ORACLES)
    def test_black_and_white_by_turns_are_exact(self, device: Device, name: str) -> None:
        """The longest way that a value can go, at every set of extreme values."""
        for step in extreme_steps():
            if step.op.name == name:
                frames = [paint_constant(value) for value in (0, 255, 0, 0, 255, 255, 255, 0)]
                check_sequence(device, ImageSpec.make(GRAY8, 5, 3), [(Chain((step,)), paint) for paint in frames])

    @pytest.mark.parametrize("text", SEQUENCES)
    def test_any_place_in_a_chain_has_a_memory_of_its_own(self, device: Device, text: str) -> None:
        for size in SEQUENCE_SIZES:
            for format in (BGR8, GRAY8):
                spec = slot_source_spec(ImageSpec.make(format, *size))
                values = ((0.9, 30), (0.9, 30), (0.2, 5), (0.6, 200), (0.95, 12))
                check_sequence(device, spec, scenes(spec, [text.format(s=s, t=t) for s, t in values]))

    @pytest.mark.parametrize("format", FORMATS.values(), ids=str)
    def test_every_format_is_remembered(self, device: Device, format: PixelFormat) -> None:
        for name in TEMPORAL_ORACLES:
            if format.depth == 8 or find_op(name, "").takes_16_bit:
                check_exact(device, SourceCase(format, 97, 41, 4, 1).spec(), name, frames=4)

    @pytest.mark.parametrize("name", TEMPORAL_ORACLES)
    def test_another_size_starts_anew_and_so_does_the_first_size_again(self, device: Device, name: str) -> None:
        spec = ImageSpec.make(BGR8, 64, 48)
        made = []
        for width in (50, 33, 50):
            made.append(check_sequence(device, spec, scenes(spec, [f"resize(width={width}) | {name}"] * 3)))
        np.testing.assert_array_equal(made[2], made[0])

    def test_a_long_scene_with_a_thing_that_comes_and_stays(self, device: Device) -> None:
        """What comes is foreground, and background once it has stayed for 0.1 / learning_rate frames."""
        spec = ImageSpec.make(GRAY8, 40, 30)

        def paint(number: int) -> Paint:
            def painted(view: ImageView) -> None:
                random = np.random.default_rng(number)
                view.plane(0)[...] = 100 + random.integers(-3, 4, (30, 40))
                if number >= 20:
                    view.plane(0)[10:20, 10:20] += 80

            return painted

        frames = [("background_subtraction(learning_rate=0.01)", paint(number)) for number in range(45)]
        masks = np.array(check_sequence(device, spec, frames))
        inside = masks[:, 10:20, 10:20]
        assert (masks[:20] == 0).all()
        assert (inside[20:28] == 255).all()
        assert (inside[35:] == 0).all()
        assert masks.sum() == inside.sum(), "nothing else was taken for foreground"
