"""What the ops that move pixels must yield, in exact fractions and whole numbers, written from their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.image import Pixels
from tests.kernels.oracles_depth import level


def crop(picture: Pixels, params: dict[str, Any]) -> Pixels:
    height, width = picture.shape[:2]
    left, top = min(params["x"], width - 1), min(params["y"], height - 1)
    columns = range(left, min(left + params["width"], width) if params["width"] else width)
    rows = range(top, min(top + params["height"], height) if params["height"] else height)
    return picture[list(rows)][:, list(columns)]


def rotate(picture: Pixels, params: dict[str, Any]) -> Pixels:
    """Where each pixel of the source goes, one quarter turn after the other: what was on the left is on top."""
    for _ in range(params["degrees"] // 90):
        height, width = picture.shape[:2]
        turned = np.empty((width, height, *picture.shape[2:]), picture.dtype)
        for y in range(height):
            turned[:, height - 1 - y] = picture[y]
        picture = turned
    return picture


def fill_values(picture: Pixels, color: str) -> tuple[int, ...]:
    """A colour's channels for this picture; in grey, BT.601's luma as grayscale has it."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    if picture.ndim == 3:
        return blue * level(picture), green * level(picture), red * level(picture)
    weights = [math.floor(Fraction(weight, 1000) * 32768 + Fraction(1, 2)) for weight in (299, 587)]
    grey = (weights[0] * red + weights[1] * green + (32768 - sum(weights)) * blue + 16384) >> 15
    return (grey * level(picture),)


def letterbox(picture: Pixels, params: dict[str, Any]) -> Pixels:
    from tests.kernels.oracles import resize

    height, width = picture.shape[:2]
    scale = min(Fraction(params["width"], width), Fraction(params["height"], height))
    inner_width, inner_height = (max(math.floor(side * scale + Fraction(1, 2)), 1) for side in (width, height))
    inner = resize(picture, {"width": inner_width, "height": inner_height, "interpolation": params["interpolation"]})
    result = np.empty((params["height"], params["width"], *picture.shape[2:]), picture.dtype)
    result[...] = np.reshape(fill_values(picture, params["fill"]), picture.shape[2:])
    left, top = (params["width"] - inner_width) // 2, (params["height"] - inner_height) // 2
    result[top : top + inner_height, left : left + inner_width] = inner
    return result


Ints = npt.NDArray[np.int64]


def sampled(picture: Pixels, x: Ints, y: Ints, params: dict[str, Any]) -> Pixels:
    """The picture at points in 1/32 px: its values in a table of all places that are asked for, then four of them."""
    x, y = np.clip(x, -(2**25), 2**25), np.clip(y, -(2**25), 2**25)
    if params["interpolation"] == "nearest":
        return value_at(picture, (x + 16) // 32, (y + 16) // 32, params).astype(picture.dtype)
    total = np.zeros((*x.shape, *picture.shape[2:]), np.int64)
    for dx in (0, 1):
        for dy in (0, 1):
            weight = (x % 32 if dx else 32 - x % 32) * (y % 32 if dy else 32 - y % 32)
            value = value_at(picture, x // 32 + dx, y // 32 + dy, params)
            total += value * weight.reshape(*x.shape, *[1] * (picture.ndim - 2))
    return ((total + 512) // 1024).astype(picture.dtype)


def value_at(picture: Pixels, x: Ints, y: Ints, params: dict[str, Any]) -> Ints:
    """Values at whole places, which may lie outside."""
    height, width = picture.shape[:2]
    inside_x, inside_y = (mirrored(x, width), mirrored(y, height)) if params["border"] == "reflect_101" else (
        np.minimum(np.maximum(x, 0), width - 1), np.minimum(np.maximum(y, 0), height - 1)
    )  # fmt: skip
    values: Ints = picture[inside_y, inside_x].astype(np.int64)
    if params["border"] == "constant":
        values[(x != inside_x) | (y != inside_y)] = np.reshape(fill_values(picture, params["fill"]), picture.shape[2:])
    return values


def mirrored(index: Ints, size: int) -> Ints:
    """… 2 1 0 1 2 … n-2 n-1 n-2 …, by a walk there and back."""
    walk = np.array([*range(size), *range(size - 2, 0, -1)], np.int64)
    return walk[index % len(walk)]


def warp_affine(picture: Pixels, params: dict[str, Any]) -> Pixels:
    """Solves the two equations for the origin and for one step along each axis; that gives the inverse's columns."""
    a, b, c, d, e, f = map(Fraction, params["matrix"])

    def back(x: Fraction, y: Fraction) -> tuple[Fraction, Fraction]:
        determinant = a * e - b * d
        return (x * e - y * b) / determinant, (a * y - d * x) / determinant

    origin, right, below = back(-c, -f), back(Fraction(1), Fraction(0)), back(Fraction(0), Fraction(1))
    width, height = params["width"] or picture.shape[1], params["height"] or picture.shape[0]
    y, x = np.mgrid[0:height, 0:width]

    def points(axis: int) -> Ints:
        step_x, step_y, start = (round(column[axis] * 2**32) for column in (right, below, origin))
        found: Ints = (x * step_x + y * step_y + start + 2**26) // 2**27
        return found

    return sampled(picture, points(0), points(1), params)


def cosine_and_sine(degrees: float) -> tuple[Decimal, Decimal]:
    """By their series, to some 40 digits."""
    with localcontext() as context:
        context.prec = 50
        pi = Decimal("3.14159265358979323846264338327950288419716939937511")
        angle = Decimal(degrees) * pi / 180
        sums, term = [Decimal(0), Decimal(0)], Decimal(1)
        for n in range(80):
            sums[n % 2] += term if n % 4 < 2 else -term
            term *= angle / (n + 1)
        return sums[0], sums[1]


def rotate_angle(picture: Pixels, params: dict[str, Any]) -> Pixels:
    cosine, sine = (
        math.floor(Fraction(value) / Fraction(params["scale"]) * 2**32 + Fraction(1, 2))
        for value in cosine_and_sine(params["degrees"])
    )
    height, width = picture.shape[:2]
    y, x = np.mgrid[0:height, 0:width]
    right, below = 2 * x - width + 1, 2 * y - height + 1
    from_x = (cosine * right + sine * below + (width - 1) * 2**32 + 2**27) // 2**28
    from_y = (cosine * below - sine * right + (height - 1) * 2**32 + 2**27) // 2**28
    return sampled(picture, from_x, from_y, params)


def warp_perspective(picture: Pixels, params: dict[str, Any]) -> Pixels:
    width, height = params["width"] or picture.shape[1], params["height"] or picture.shape[0]
    if params["corners"]:
        rows, reach = square_to_corners([Fraction(value) for value in params["corners"]]), 1
    else:
        # The adjugate's columns are the cross products of the matrix's rows.
        first, second, third = (list(map(Fraction, params["matrix"][3 * r : 3 * r + 3])) for r in range(3))
        columns = [cross(second, third), cross(third, first), cross(first, second)]
        rows, reach = [[column[r] for column in columns] for r in range(3)], 2**14
    largest = max(abs(a) * reach + abs(b) * reach + abs(c) for a, b, c in rows)
    scale = Fraction(1)
    while largest * scale > 2**55:
        scale /= 2
    while largest * scale * 2 <= 2**55:
        scale *= 2
    y, x = np.mgrid[0:height, 0:width].astype(object)  # Python's numbers: nothing can overflow
    sums = []
    for row in rows:
        a, b, c = (math.floor(value * scale + Fraction(1, 2)) for value in row)
        if params["corners"]:
            a = math.floor(Fraction(a, max(width - 1, 1)) + Fraction(1, 2))
            b = math.floor(Fraction(b, max(height - 1, 1)) + Fraction(1, 2))
        sums.append(a * x + b * y + c)

    def points(axis: int) -> Ints:
        somewhere = np.where(sums[2] == 0, 1, sums[2])
        found = np.where(sums[2] == 0, -(2**25), (64 * sums[axis] + somewhere) // (2 * somewhere))
        return np.clip(found, -(2**25), 2**25).astype(np.int64)

    return sampled(picture, points(0), points(1), params)


def cross(u: list[Fraction], v: list[Fraction]) -> list[Fraction]:
    return [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]


def square_to_corners(corners: list[Fraction]) -> list[list[Fraction]]:
    """The eight equations of four pairs of points, solved by Gauss and Jordan."""
    equations = []
    for k, (u, v) in enumerate(((0, 0), (1, 0), (1, 1), (0, 1))):
        x, y = corners[2 * k], corners[2 * k + 1]
        equations.append([Fraction(n) for n in (u, v, 1, 0, 0, 0, -u * x, -v * x, x)])
        equations.append([Fraction(n) for n in (0, 0, 0, u, v, 1, -u * y, -v * y, y)])
    for column in range(8):
        pivot = next(row for row in range(column, 8) if equations[row][column] != 0)
        equations[column], equations[pivot] = equations[pivot], equations[column]
        equations[column] = [value / equations[column][column] for value in equations[column]]
        for row in range(8):
            if row != column:
                factor = equations[row][column]
                equations[row] = [a - factor * b for a, b in zip(equations[row], equations[column], strict=True)]
    found = [equation[8] for equation in equations]
    return [found[0:3], found[3:6], [*found[6:8], Fraction(1)]]


def undistort(picture: Pixels, params: dict[str, Any]) -> Pixels:
    """Pixel by pixel in 32-bit floats, from the formulas of the op's docstring; each operation is rounded."""
    f = np.float32
    height, width = picture.shape[:2]
    listed = [*params["coefficients"], *[0.0] * 8][:12]
    with np.errstate(all="ignore"):
        sides = [
            (f(width), f(params["calibrated_width"] or width)),
            (f(height), f(params["calibrated_height"] or height)),
        ]
        focal = [f(params["camera"][axis]) * now / then for axis, (now, then) in enumerate(sides)]
        centre = [
            (f(params["camera"][2 + axis]) + f(0.5)) * now / then - f(0.5) for axis, (now, then) in enumerate(sides)
        ]
        row, column = np.mgrid[0:height, 0:width].astype(f)
        x = (column - centre[0]) / (focal[0] * f(params["zoom"]))
        y = (row - centre[1]) / (focal[1] * f(params["zoom"]))
        square = x * x + y * y
        if params["model"] == "fisheye":
            places = fisheye_bent(x, y, square, [f(value) for value in listed[:4]])
        else:
            places = pinhole_bent(x, y, square, [f(value) for value in listed])
        points = []
        for axis in (0, 1):
            scaled = np.floor((places[axis] * focal[axis] + centre[axis]) * f(32) + f(0.5))
            points.append(np.clip(np.nan_to_num(scaled, nan=-(2.0**25)), -(2.0**25), 2.0**25).astype(np.int64))
    return sampled(picture, points[0], points[1], params)


Reals = npt.NDArray[np.float32]


def pinhole_bent(x: Reals, y: Reals, square: Reals, k: list[Any]) -> tuple[Reals, Reals]:
    one, two = np.float32(1), np.float32(2)
    k1, k2, p1, p2, k3, k4, k5, k6, s1, s2, s3, s4 = k
    above, below = np.zeros_like(square), np.zeros_like(square)
    for factor in (k3, k2, k1):
        above = (above + factor) * square
    for factor in (k6, k5, k4):
        below = (below + factor) * square
    radial = (above + one) / (below + one)
    prism = [(s2 * square + s1) * square, (s4 * square + s3) * square]
    product = x * y * two
    tangential = [p1 * product + p2 * (square + x * x * two), p2 * product + p1 * (square + y * y * two)]
    return x * radial + tangential[0] + prism[0], y * radial + tangential[1] + prism[1]


def fisheye_bent(x: Reals, y: Reals, square: Reals, k: list[Any]) -> tuple[Reals, Reals]:
    one = np.float32(1)
    radius = np.sqrt(square)
    angle = np.array([arc_tangent(value) for value in radius.ravel()], np.float32).reshape(radius.shape)
    tail = np.zeros_like(angle)
    for factor in reversed(k):
        tail = (tail + factor) * (angle * angle)
    scale = np.where(radius > 0, angle * (tail + one) / radius, one)
    return x * scale, y * scale


def arc_tangent(r: Any) -> Any:
    """Cephes' atanf of 0 and more."""
    f = np.float32
    if r > f(math.sqrt(2) + 1):
        start, z = f(math.pi / 2), f(-1) / r
    elif r > f(math.sqrt(2) - 1):
        start, z = f(math.pi / 4), (r - f(1)) / (r + f(1))
    else:
        start, z = f(0), r
    w = z * z
    tail = f(8.05374449538e-2)
    for factor in (-1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1):
        tail = tail * w + f(factor)
    return start + (tail * w * z + z)


def seen_at_an_angle(values: dict[str, Any]) -> dict[str, Any]:
    """Any numbers of warp_perspective as four corners about the picture's, or as a matrix that is not too wild."""
    small = [value / 1e6 for value in values["matrix"]]
    matrix = [1 + small[0] / 2, small[1] / 2, 20 * small[2], small[3] / 2, 1 + small[4] / 2, 20 * small[5],
              small[6] / 100, small[7] / 100, 1]  # fmt: skip
    base = (4, 3, 50, 6, 44, 41, 2, 36)
    corners = [corner + value / 1e6 for corner, value in zip(base, values["corners"], strict=False)]
    if len(corners) == 8:
        return {**values, "corners": corners, "matrix": [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]}
    return {**values, "corners": [], "matrix": [float(value) for value in matrix]}


def a_camera(values: dict[str, Any]) -> dict[str, Any]:
    """Any numbers of undistort with focal lengths, and as many coefficients as the model has."""
    fx, fy, cx, cy = values["camera"]
    coefficients = list(values["coefficients"])
    count = 4 if values["model"] == "fisheye" else max(n for n in (4, 5, 8, 12) if n <= len(coefficients))
    return {**values, "camera": [max(1.0, abs(fx)), max(1.0, abs(fy)), cx, cy], "coefficients": coefficients[:count]}


def invertible(values: dict[str, Any]) -> dict[str, Any]:
    """Any numbers of warp_affine as a matrix that moves the picture about where it is; for the strategies."""
    matrix = [value / (10_000 if k % 3 == 2 else 500_000) if abs(value) > 2 else value
              for k, value in enumerate(values["matrix"])]  # fmt: skip
    if abs(matrix[0] * matrix[4] - matrix[1] * matrix[3]) < 1e-3:
        matrix = [0.7, -0.3, matrix[2], 0.45, 1.1, matrix[5]]
    return {**values, "matrix": matrix}


GATHER_REPAIRS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "undistort": a_camera,
    "warp_affine": invertible,
    "warp_perspective": seen_at_an_angle,
}

GATHER_ORACLES: dict[str, Callable[[Pixels, dict[str, Any]], Pixels]] = {
    "crop": crop,
    "letterbox": letterbox,
    "rotate": rotate,
    "rotate_angle": rotate_angle,
    "undistort": undistort,
    "warp_affine": warp_affine,
    "warp_perspective": warp_perspective,
}

# As people use them, where extremes mostly lead out of the picture.
USUAL_STEPS = (
    "warp_affine(matrix=[0.9, 0.3, 4.5, -0.25, 1.1, 7.25], border='reflect_101')",
    "warp_affine(matrix=[-1.5, 0, 40, 0.1, 2.5, -9], interpolation='nearest', border='replicate', width=77)",
    "rotate_angle(degrees=17.5, scale=1.25, border='replicate')",
    "rotate_angle(degrees=-133.3, scale=0.7, fill='#336699')",
    "warp_perspective(corners=[5, 4, 60, 9, 44, 30, -3, 25.5], width=71, height=43, fill='#a0ff12')",
    "warp_perspective(corners=[60, 9, 5, 4, -3, 25.5, 44, 30], border='reflect_101', interpolation='nearest')",
    "warp_perspective(matrix=[1.1, 0.2, -6, -0.1, 0.9, 8, 0.002, -0.003, 1], border='replicate')",
    "warp_perspective(matrix=[1.1, 0.2, -6, -0.1, 0.9, 8, 0.05, -0.03, -1], border='reflect_101')",
    "undistort(camera=[60, 62, 31, 24], calibrated_width=64, calibrated_height=48)",
    "undistort(camera=[60, 62, 31, 24], calibrated_width=0, calibrated_height=0, coefficients=[-0.3, 0.1, 0.01, -0.02, "
    "-0.02], zoom=0.7, border='reflect_101')",
    "undistort(camera=[60, 62, 31, 24], calibrated_width=0, calibrated_height=0, coefficients=[2.5, 1.5, 0.001, 0.002, "
    "0.1, 2.8, 2.1, 0.4], border='replicate', interpolation='nearest')",
    "undistort(camera=[60, 62, 31, 24], calibrated_width=128, calibrated_height=96, coefficients=[-0.3, 0.1, 0.01, "
    "-0.02, 0.03, 0.1, 0.05, -0.01, 0.02, -0.003, 0.01, 0.002], zoom=1.4)",
    "undistort(model='fisheye', camera=[25, 25, 31, 24], calibrated_width=0, calibrated_height=0, coefficients=[-0.03, "
    "0.01, -0.004, 0.001], zoom=0.5)",
)

# The largest numbers on the way to a point, at the longest sides.
FARTHEST_STEPS = (
    "warp_affine(matrix=[1, 2, -1e6, 2, 1, 1e6])",
    "warp_affine(matrix=[3.1e-5, 0, 500, 0, 3.1e-5, 1])",  # as small as may be
    "warp_affine(matrix=[1e6, 0, 0, 0, 1e6, 0])",
    "rotate_angle(degrees=33, scale=0.01)",
    "warp_perspective(matrix=[1e6, 1e6, 1e6, -1e6, 1e6, 1e6, 1e6, -1e6, 1e6])",
    "warp_perspective(matrix=[1e-6, 0, 1, 0, 1e-6, 0, 1, 0, 1e6], border='reflect_101')",
    "warp_perspective(corners=[-1e6, -1e6, 1e6, -1e6, 1e6, 1e6, -1e6, 1e6])",
    "warp_perspective(corners=[0, 0, 1e-3, 0, 1e-3, 1e-3, 0, 1e-3])",
    "undistort(camera=[1, 1, -1e5, 1e5], coefficients=[1e4, 1e4, 1e4, -1e4, 1e4, 1e4, 1e4, 1e4])",
)
