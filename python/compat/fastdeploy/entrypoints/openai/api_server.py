"""python -m fastdeploy.entrypoints.openai.api_server ...: becomes `tern serve` with the same flags."""

from fastdeploy import run_program

if __name__ == "__main__":
    run_program("serve")
