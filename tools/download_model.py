"""PaddleNLP's download_model.py: starts the program beside it, or `tern` of PATH, which takes the same options."""

import os
import shutil
import sys

beside = os.path.join(os.path.dirname(os.path.realpath(__file__)), "tern")
program = beside if os.access(beside, os.X_OK) else shutil.which("tern")
if program is None:
    sys.exit("download_model.py: there is no tern beside it or in PATH")
os.execv(program, [program, "download_model", *sys.argv[1:]])
