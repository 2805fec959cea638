#!/usr/bin/env python3
"""Fetches the fonts that the pictures are drawn with and cuts them down to printable ASCII.

Everything comes from Debian packages (`apt-get download`, nothing is installed). Each family gives up to four faces: upright,
bold, italic, bold italic. HELD_OUT families are never trained on; close relatives of theirs (Noto Sans, Droid Sans) are left
out of the training list too.
"""

import argparse, collections, glob, json, os, re, subprocess, sys

TRAINING = {
    "fonts-dejavu-core": ["DejaVu Sans", "DejaVu Sans Mono", "DejaVu Serif"],
    "fonts-dejavu-extra": ["DejaVu Sans", "DejaVu Serif"],
    "fonts-liberation2": ["Liberation Sans", "Liberation Serif", "Liberation Mono"],
    "fonts-freefont-ttf": ["FreeSans", "FreeSerif", "FreeMono"],
    "fonts-roboto-unhinted": ["Roboto", "Roboto Condensed"],
    "fonts-roboto-slab": ["Roboto Slab"],
    "fonts-lato": ["Lato"],
    "fonts-cantarell": ["Cantarell"],
    "fonts-comfortaa": ["Comfortaa"],
    "fonts-crosextra-caladea": ["Caladea"],
    "fonts-firacode": ["Fira Code"],
    "fonts-inconsolata": ["Inconsolata"],
    "fonts-inter": ["Inter"],
    "fonts-junction": ["Junction"],
    "fonts-jura": ["Jura"],
    "fonts-karla": ["Karla"],
    "fonts-lobstertwo": ["Lobster Two"],
    "fonts-linuxlibertine": ["Linux Libertine O", "Linux Biolinum O"],
    "fonts-mononoki": ["mononoki"],
    "fonts-oldstandard": ["Old Standard TT"],
    "fonts-paratype": ["PT Sans", "PT Serif", "PT Mono", "PT Sans Narrow"],
    "fonts-play": ["Play"],
    "fonts-quicksand": ["Quicksand"],
    "fonts-sil-andika": ["Andika"],
    "fonts-sil-charis": ["Charis SIL"],
    "fonts-sil-gentium": ["Gentium"],
    "fonts-stix": ["STIX"],
    "fonts-tuffy": ["Tuffy"],
    "fonts-urw-base35": [
        "C059",
        "Nimbus Mono PS",
        "Nimbus Roman",
        "Nimbus Sans",
        "Nimbus Sans Narrow",
        "P052",
        "URW Bookman",
        "URW Gothic",
    ],
    "fonts-yanone-kaffeesatz": ["Yanone Kaffeesatz"],
    "fonts-b612": ["B612", "B612 Mono"],
    "fonts-courier-prime": ["Courier Prime Code"],
    "fonts-anonymous-pro": ["Anonymous Pro"],
    "fonts-cmu": ["CMU Bright", "CMU Concrete", "CMU Sans Serif", "CMU Serif", "CMU Typewriter Text"],
    "fonts-comic-neue": ["Comic Neue"],
    "fonts-clear-sans": ["Clear Sans"],
    "fonts-cardo": ["Cardo"],
    "fonts-arapey": ["Arapey"],
    "fonts-averia-sans-gwf": ["Averia Sans GWF"],
    "fonts-averia-serif-gwf": ["Averia Serif GWF"],
    "fonts-dosis": ["Dosis"],
    "fonts-go": ["Go", "Go Mono"],
    "fonts-goudybookletter": ["Goudy Bookletter 1911"],
    "fonts-fanwood": ["Fanwood Text"],
    "fonts-fantasque-sans": ["Fantasque Sans Mono"],
    "fonts-league-mono": ["League Mono"],
    "fonts-manrope": ["Manrope"],
    "fonts-noto-core": ["Noto Serif"],
    "fonts-noto-mono": ["Noto Mono"],
    "fonts-opendyslexic": ["OpenDyslexicAlta"],
    "fonts-oxygen": ["Oxygen-Sans", "Oxygen Mono"],
    "fonts-sora": ["Sora"],
    "fonts-ocr-b": ["OCR B"],
    "fonts-texgyre": [
        "TeX Gyre Adventor",
        "TeX Gyre Bonum",
        "TeX Gyre Cursor",
        "TeX Gyre Heros",
        "TeX Gyre Heros Cn",
        "TeX Gyre Pagella",
        "TeX Gyre Schola",
        "TeX Gyre Termes",
    ],
    "fonts-gfs-didot": ["GFS Didot"],
    "fonts-gfs-neohellenic": ["GFS Neohellenic"],
    "fonts-adf-gillius": ["Gillius ADF"],
    "fonts-adf-universalis": ["Universalis ADF Std"],
    "fonts-adf-baskervald": ["Baskervald ADF Std"],
    "fonts-adf-libris": ["Libris ADF Std"],
    "fonts-agave": ["Agave"],
    "fonts-elstob": ["ElstobD"],
    "fonts-routed-gothic": ["Routed Gothic"],
    "fonts-prociono": ["Prociono"],
    "fonts-lindenhill": ["Linden Hill"],
    "fonts-eurofurence": ["eurofurence"],
}
HELD_OUT = {
    "fonts-open-sans": ["Open Sans"],
    "fonts-vollkorn": ["Vollkorn"],
    "fonts-jetbrains-mono": ["JetBrains Mono"],
    "fonts-cabin": ["Cabin"],
    "fonts-quattrocento": ["Quattrocento"],
    "fonts-ebgaramond": ["EB Garamond"],
}
STYLES = {
    "regular": "Regular",
    "book": "Regular",
    "roman": "Regular",
    "sansbook": "Regular",
    "12regular": "Regular",
    "medium": "Medium",
    "light": "Light",
    "sharp": "Regular",
    "bold": "Bold",
    "demi": "Bold",
    "sansbold": "Bold",
    "12bold": "Bold",
    "italic": "Italic",
    "oblique": "Italic",
    "bookoblique": "Italic",
    "lightitalic": "LightItalic",
    "12italic": "Italic",
    "bolditalic": "BoldItalic",
    "boldoblique": "BoldItalic",
    "demioblique": "BoldItalic",
    "demiitalic": "BoldItalic",
}


def fetch(packages, folder):
    """Downloads and unpacks the packages that are not there yet; versions by package."""
    os.makedirs(folder, exist_ok=True)
    for p in packages:
        if not os.path.isdir(os.path.join(folder, p)):
            subprocess.run(["apt-get", "download", "-q", p], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            subprocess.run(
                ["dpkg-deb", "-x", glob.glob(os.path.join(folder, p + "_*.deb"))[0], os.path.join(folder, p)], check=True
            )
    return {p: os.path.basename(f).split("_")[1] for p in packages for f in glob.glob(os.path.join(folder, p + "_*.deb"))}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument(
        "--out",
        default="build/fonts",
        help="folder for packages and faces (default %(default)s); the faces lie in its folder faces",
    )
    a = ap.parse_args()
    from fontTools import subset
    from fontTools.ttLib import TTFont

    versions = fetch(sorted({*TRAINING, *HELD_OUT}), os.path.join(a.out, "packages"))
    found = {}
    for split, wanted in (("train", TRAINING), ("held_out", HELD_OUT)):
        for package, families in wanted.items():
            for path in sorted(glob.glob(os.path.join(a.out, "packages", package, "**", "*.[ot]tf"), recursive=True)):
                if not os.path.exists(path):
                    continue  # a link into another package
                font = TTFont(path, lazy=True)
                name = font["name"]
                family, style = name.getDebugName(16) or name.getDebugName(1), name.getDebugName(17) or name.getDebugName(2)
                style = STYLES.get(re.sub(r"[\s-]", "", style).lower())
                if family in families and style and "fvar" not in font and all(c in font.getBestCmap() for c in range(32, 127)):
                    found.setdefault((split, family), {}).setdefault(style, path)
    faces, target = [], os.path.join(a.out, "faces")
    os.makedirs(target, exist_ok=True)
    for (split, family), styles in sorted(found.items()):
        if "Regular" not in styles:
            styles["Regular"] = styles.get("Medium") or styles.get("Light")
        for style in ("Regular", "Bold", "Italic", "BoldItalic"):
            if not styles.get(style):
                continue
            file = re.sub(r"\W", "", family) + "-" + style + os.path.splitext(styles[style])[1]
            options = subset.Options(layout_features=["kern"], notdef_outline=True, name_IDs=[1, 2])
            font = subset.load_font(styles[style], options)
            s = subset.Subsetter(options)
            s.populate(unicodes=range(32, 127))
            s.subset(font)
            subset.save_font(font, os.path.join(target, file), options)
            faces.append(dict(file=file, family=family, style=style, split=split))
    with open(os.path.join(target, "faces.json"), "w") as f:
        json.dump(dict(faces=faces, packages=versions), f, indent=1)
    count = collections.Counter(s for s, _ in found)
    missing = {f for w in (TRAINING, HELD_OUT) for v in w.values() for f in v} - {f for _, f in found}
    print(f"{len(faces)} faces, families: {dict(count)}", f"MISSING: {sorted(missing)}" if missing else "")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
