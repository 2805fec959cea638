"""FastDeploy's offline API over the program `tern`."""

from __future__ import annotations

import queue
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from tern.client import Client
from tern.media import Media, remove
from tern.outputs import EmbeddingRequestOutput, Growing, RewardRequestOutput, from_answer, from_vector, refused
from tern.process import Process
from tern.progress import bar
from tern.sampling_params import SamplingParams

_IN_FLIGHT = 256  # requests that the engine knows of at once; the rest wait here


class LLM:
    """A model, served by a child process that ends with this one, with close(), at the end of `with`, or at exit.

    `engine_args` are the program's flags: LLM(path, max_model_len=8192, quantization="wint4"). Errors: EngineDied with
    the program's last lines when it does not start or ends. Threads may share an LLM; a fork may not use its parent's.
    """

    def __init__(self, model, revision=None, tokenizer=None, enable_logprob=False, chat_template=None, **engine_args):
        arguments = dict(engine_args, revision=revision, tokenizer=tokenizer, chat_template=chat_template)
        if enable_logprob:
            arguments["enable_logprob"] = True
        self._process = Process(model, arguments, lambda path: Client(path, None).ready())
        own = "allowed_local_media_path" not in engine_args
        self._media = Media(self._process.media if own else None)

    def generate(self, prompts, sampling_params=None, use_tqdm=True, stream=False):
        """Answers to prompts: a text, token ids, a list of either, {"prompt": ...} or {"prompt_token_ids": ...}, a list.

        `sampling_params`: one for all or one for each. Returns RequestOutputs in the order of the prompts, n for each.
        With `stream` an iterator: each item is that list as it stands, None where nothing has come yet.
        """
        asked = [(prompt, {"prompt": _prompt_of(prompt)}, []) for prompt in _listed(prompts)]
        return self._run("/v1/completions", asked, sampling_params, use_tqdm, stream, chat=False)

    def chat(
        self,
        messages,
        sampling_params=None,
        use_tqdm=True,
        chat_template_kwargs=None,
        chat_template=None,
        tools=None,
        stream=False,
    ):
        """Answers to conversations: a list of messages, or a list of such lists; as generate() otherwise.

        Parts of a message may be {"type": "image", "image": path, URL, bytes, PIL picture or array} and {"type": "video",
        "video": path, URL or bytes} beside the protocol's own. `chat_template` acts with allow_request_chat_template=True.
        """
        more = {"chat_template_kwargs": chat_template_kwargs, "chat_template": chat_template, "tools": tools}
        more = {name: value for name, value in more.items() if value is not None}
        asked = []
        for conversation in [messages] if messages and isinstance(messages[0], dict) else messages:
            shaped, files = self._media.shape(conversation)
            asked.append((conversation, {"messages": shaped, **more}, files))
        return self._run("/v1/chat/completions", asked, sampling_params, use_tqdm, stream, chat=True)

    def embed(self, prompts, dimensions=None, normalize=None, use_tqdm=True):
        """Embeddings of prompts in generate()'s forms, by a model of embeddings (convert="embed", runner="pooling").

        Returns EmbeddingRequestOutputs in the order of the prompts. `dimensions`: the vectors are cut to so many values
        before they are normalized, unless `normalize` is False.
        """
        more = {"dimensions": dimensions, "normalize": normalize}
        more = {name: value for name, value in more.items() if value is not None}
        bodies = [(prompt, {"input": _prompt_of(prompt), **more}, []) for prompt in _listed(prompts)]
        return self._vectors("/v1/embeddings", bodies, use_tqdm, EmbeddingRequestOutput)

    def reward(self, messages, use_tqdm=True, chat_template_kwargs=None):
        """Scores of conversations, by a reward model: a list of messages, or a list of such lists; RewardRequestOutputs."""
        more = {"chat_template_kwargs": chat_template_kwargs} if chat_template_kwargs is not None else {}
        bodies = []
        for conversation in [messages] if messages and isinstance(messages[0], (dict, int)) else messages:
            ids = bool(conversation) and isinstance(conversation[0], int)
            shaped, files = (list(conversation), []) if ids else self._media.shape(conversation)
            bodies.append((conversation, {"messages": shaped, **more}, files))
        return self._vectors("/v1/reward", bodies, use_tqdm, RewardRequestOutput)

    def _vectors(self, path, bodies, use_tqdm, kind):
        self._process.check()
        fixed = {"model": "default", "return_token_ids": True}
        jobs = [(prompt, {**fixed, **fields}, files, 1) for prompt, fields, files in bodies]
        return self._whole(path, jobs, use_tqdm, lambda *answered: from_vector(kind, *answered))

    def close(self):
        """Ends the program. Harmless when repeated."""
        self._process.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _run(self, path, asked, sampling_params, use_tqdm, stream, chat):
        self._process.check()
        params = _params_for(len(asked), sampling_params)
        fixed = {"model": "default", "return_token_ids": True, "collect_metrics": True}
        jobs = []
        for (prompt, fields, files), one in zip(asked, params):
            body = {**fixed, **one.fields(chat), **fields}
            jobs.append((prompt, body, files, one.n))
        return self._stream(path, jobs, use_tqdm) if stream else self._whole(path, jobs, use_tqdm)

    def _new_client(self):
        return Client(self._process.socket, self._process.died)

    @staticmethod
    def _ask(client, path, job, made):
        prompt, body, files, n = job
        status, answer = client.post(path, body)
        remove(files)
        if made is not None:
            return [made(prompt, status, answer)]
        if status == 200:
            return from_answer(prompt, answer)
        return [refused(prompt, status, answer["error"]["message"]) for _ in range(n)]

    def _whole(self, path, jobs, use_tqdm, made=None):
        results = [None] * len(jobs)
        shown = bar(len(jobs), use_tqdm)
        pool = ThreadPoolExecutor(max(1, min(_IN_FLIGHT, len(jobs))), thread_name_prefix="tern")
        client, waiting = self._new_client(), {}
        try:
            waiting = {pool.submit(self._ask, client, path, job, made): i for i, job in enumerate(jobs)}
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    results[waiting.pop(future)] = future.result()
                    shown.update(1)
        except BaseException:  # Ctrl-C too: the call ends, the engine goes on
            for future in waiting:
                future.cancel()  # those that have not begun
            client.close()
            raise
        finally:
            shown.close()
            pool.shutdown(wait=True)
            client.close()
            for job in jobs:
                remove(job[2])
        return [output for outputs in results for output in outputs]

    def _stream(self, path, jobs, use_tqdm):
        news = queue.Queue()
        client = self._new_client()

        def follow(number, job):
            prompt, body, _, n = job
            growing = Growing(prompt, n)
            body = {**body, "stream": True, "stream_options": {"include_usage": True}}
            try:
                for chunk in client.stream(path, body):
                    if growing.take(chunk):
                        news.put((number, growing.outputs, None))
                news.put((number, growing.outputs, "end"))
            except BaseException as error:  # noqa: BLE001  the reader raises it
                news.put((number, None, error))

        pool = ThreadPoolExecutor(max(1, min(_IN_FLIGHT, len(jobs))), thread_name_prefix="tern")
        shown = bar(len(jobs), use_tqdm)
        state = [[None] * job[3] for job in jobs]
        left, begun = len(jobs), []
        try:
            begun = [pool.submit(follow, number, job) for number, job in enumerate(jobs)]
            while left:
                number, outputs, end = news.get()
                if isinstance(end, BaseException):
                    raise end
                state[number] = outputs
                if end:
                    left -= 1
                    shown.update(1)
                    continue
                yield [output for outputs in state for output in outputs]
        finally:
            for future in begun:
                future.cancel()  # those that have not begun
            client.close()
            pool.shutdown(wait=True)
            shown.close()
            for job in jobs:
                remove(job[2])


def _listed(prompts):
    if isinstance(prompts, (str, dict)) or (prompts and isinstance(prompts[0], int)):
        return [prompts]
    return list(prompts)


def _prompt_of(prompt):
    if isinstance(prompt, dict):
        if prompt.get("multimodal_data"):
            raise TypeError("pictures and videos are parts of messages here: use chat()")
        if "prompt_token_ids" in prompt:
            return list(prompt["prompt_token_ids"])
        if "prompt" not in prompt:
            raise ValueError('a prompt that is a dict has "prompt" or "prompt_token_ids"')
        prompt = prompt["prompt"]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, (list, tuple)) and all(isinstance(x, int) for x in prompt):
        return list(prompt)
    raise TypeError(f"a prompt is a text, a list of token ids or a dict, not {type(prompt).__name__}")


def _params_for(count, given):
    if given is None:
        given = SamplingParams()
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise ValueError(f"{count} prompts and {len(given)} sampling_params: one for all, or one for each")
    return list(given)
