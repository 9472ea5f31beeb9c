"""Plots the results."""

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

OURS, THEIRS = "#2a7f3f", "#8a8f98"


def plot(results, title):
    """Return a figure of images per second and test accuracy, with a bar for each loader."""
    names = [result.name for result in results]
    colors = [OURS if "gristmill" in name else THEIRS for name in names]
    figure = Figure(figsize=(11, 1.6 + 0.42 * len(results)), layout="constrained", dpi=120)
    speed, accuracy = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))

    bars = speed.barh(names, [result.images_per_second for result in results], color=colors)
    speed.bar_label(bars, fmt="{:,.0f}", padding=3)
    speed.set_xlabel("images per second, training included")
    speed.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))

    bars = accuracy.barh(names, [result.accuracy for result in results], color=colors)
    accuracy.bar_label(bars, labels=[f"{result.accuracy}" for result in results], padding=3)
    accuracy.set_xlabel("test accuracy")

    speed.invert_yaxis()  # the first on top; shared by both
    for axes in (speed, accuracy):
        axes.margins(x=0.18)  # room for the numbers
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    return figure
