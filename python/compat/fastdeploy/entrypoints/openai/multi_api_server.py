"""python -m fastdeploy.entrypoints.openai.multi_api_server ...: becomes `tern multi-api-server` with the same flags."""

from fastdeploy import run_program

if __name__ == "__main__":
    run_program("multi-api-server")
