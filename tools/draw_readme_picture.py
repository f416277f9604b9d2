"""Draw the README's picture again: ``python tools/draw_readme_picture.py`` (one minute)."""

import pathlib

from optax_varynorm.demo import figures, race, streams

PICTURE = pathlib.Path(__file__).parent.parent / "docs" / "learning_rates.svg"


def main():
    stream = streams.breast_cancer()
    peers = [
        race.play_peer(name, stream, print, units)
        for name in race.PEERS
        for units in (race.STANDARDIZED, race.RAW)
    ]
    figure = figures.learning_rates([race.play_ours(stream, print), *peers])
    (axes,) = figure.axes
    axes.set_title("breast_cancer, one pass")
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
