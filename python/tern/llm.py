"""FastDeploy's offline API over the program `tern`."""

from __future__ import annotations

import queue
import threading
from contextlib import closing

from tern.client import Client
from tern.media import Media
from tern.process import Process
from tern.progress import bar
from tern.prompts import listed, prompt_parts

_IN_FLIGHT = 320  # requests that the program knows of at once: more than decode together; the rest wait here
_MEDIA_BYTES = 512 << 20  # pictures and videos that lie in memory for them; a request that is alone may have more
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_WANTED_VECTOR = {"model": "default", "return_token_ids": True}
_WANTED = {**_WANTED_VECTOR, "collect_metrics": True}


class LLM:
    """A model, served by a child process that ends with this one, with close(), at the end of `with`, or at exit.

    `engine_args` are the program's flags: LLM(path, max_model_len=8192, quantization="wint4"). Errors: EngineDied with
    the program's last lines when it does not start or ends. Threads may share an LLM; a fork may not use its parent's.
    """

    def __init__(self, model, revision=None, tokenizer=None, enable_logprob=False, chat_template=None, **engine_args):
        arguments = dict(engine_args, revision=revision, tokenizer=tokenizer, chat_template=chat_template)
        if enable_logprob:
            arguments["enable_logprob"] = True
        self._parsed = bool(engine_args.get("reasoning_parser") or engine_args.get("tool_call_parser"))
        self._process = Process(model, arguments)
        _outputs()  # these imports while the program starts
        self._process.wait(lambda path: Client(path, None).ready())
        own = "allowed_local_media_path" not in engine_args
        self._media = Media(self._process.media if own else None)

    def generate(self, prompts, sampling_params=None, use_tqdm=True, stream=False):
        """Answers to prompts: a text, token ids, a list of either, {"prompt": ...} or {"prompt_token_ids": ...}, a list.

        A dict may have "multimodal_data" beside them: {"image": [...], "video": [...]}, which stand for the placeholders
        of the prompt in their order: paths, URLs, bytes, PIL pictures or arrays, and videos as {"video": bytes, "fps": ...}.
        `sampling_params`: one for all or one for each. Returns RequestOutputs in the order of the prompts, n for each.
        With `stream` an iterator: each item is that list as it stands, None where nothing has come yet.
        """
        prompts = listed(prompts)
        params = _params_for(len(prompts), sampling_params)
        jobs = [self._generation(prompt, one) for prompt, one in zip(prompts, params)]
        return self._run(jobs, use_tqdm, stream)

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
        conversations = [messages] if messages and isinstance(messages[0], dict) else messages
        params = _params_for(len(conversations), sampling_params)
        jobs = []
        for conversation, one in zip(conversations, params):
            jobs.append(self._conversation(conversation, {**_WANTED, **one.fields(True), **more}, one.n))
        return self._run(jobs, use_tqdm, stream)

    def embed(self, prompts, dimensions=None, normalize=None, use_tqdm=True):
        """Embeddings of prompts in generate()'s forms, by a model of embeddings (convert="embed", runner="pooling").

        Returns EmbeddingRequestOutputs in the order of the prompts. `dimensions`: the vectors are cut to so many values
        before they are normalized, unless `normalize` is False.
        """
        more = {"dimensions": dimensions, "normalize": normalize}
        more = {name: value for name, value in more.items() if value is not None}
        jobs = []
        for prompt in listed(prompts):
            prompt_fields, media = prompt_parts(prompt)
            if media:
                raise TypeError("embed() takes texts and token ids")
            body = {**_WANTED_VECTOR, "input": prompt_fields["prompt"], **more}
            jobs.append(_Job(prompt, "/v1/embeddings", lambda body=body: (body, [])))
        return self._vectors(jobs, use_tqdm, _outputs().EmbeddingRequestOutput)

    def reward(self, messages, use_tqdm=True, chat_template_kwargs=None):
        """Scores of conversations, by a reward model: a list of messages, or a list of such lists; RewardRequestOutputs."""
        more = {"chat_template_kwargs": chat_template_kwargs} if chat_template_kwargs is not None else {}
        jobs = []
        for conversation in [messages] if messages and isinstance(messages[0], (dict, int)) else messages:
            fields = {**_WANTED_VECTOR, **more}
            if conversation and isinstance(conversation[0], int):
                body = {**fields, "messages": list(conversation)}
                jobs.append(_Job(conversation, "/v1/reward", lambda body=body: (body, [])))
            else:
                jobs.append(self._conversation(conversation, fields, 1, "/v1/reward"))
        return self._vectors(jobs, use_tqdm, _outputs().RewardRequestOutput)

    def close(self):
        """Ends the program. Harmless when repeated."""
        self._process.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _generation(self, prompt, params):
        fields, media = prompt_parts(prompt)
        text = fields["prompt"]
        if not media and not self._parsed:
            body = {**_WANTED, **params.fields(False), **fields}
            return _Job(prompt, _COMPLETIONS, lambda: (body, []), params.n)
        # Pictures are of chats, and so is what parts thoughts and calls from answers: one message is the whole prompt.
        del fields["prompt"]
        if not isinstance(text, str):
            fields["prompt_token_ids"] = text
        elif media:
            fields["disable_chat_template"] = True
        else:
            fields.update(disable_chat_template=True, add_special_tokens=True)
        body = {**_WANTED, **params.fields(True), **fields}

        def make():
            content, files = self._media.parts(media or {})
            if isinstance(text, str):
                content.append({"type": "text", "text": text})
            return {**body, "messages": [{"role": "user", "content": content}] if content else []}, files

        return _Job(prompt, _CHAT, make, params.n)

    def _conversation(self, conversation, fields, n, path=_CHAT):
        def make():
            shaped, files = self._media.shape(conversation)
            return {**fields, "messages": shaped}, files

        return _Job(conversation, path, make, n)

    def _vectors(self, jobs, use_tqdm, kind):
        self._process.check()
        made = _outputs().from_vector
        return self._whole(jobs, use_tqdm, lambda job, *answered: [made(kind, job.prompt, *answered)])

    def _run(self, jobs, use_tqdm, stream):
        self._process.check()
        return self._stream(jobs, use_tqdm) if stream else self._whole(jobs, use_tqdm, _made)

    def _answers(self, client, jobs, held, stream):
        """What the program answers, as Client.run() yields it. `held`: the files of the jobs it works on."""

        def bodies():
            for number, job in enumerate(jobs):
                body, held[number] = job.make()
                if stream:
                    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
                yield job.path, body

        def may_begin(count):
            return count == 0 or self._media.held < _MEDIA_BYTES

        return client.run(bodies(), _IN_FLIGHT, may_begin, stream)

    def _whole(self, jobs, use_tqdm, made):
        results, held = [None] * len(jobs), {}
        client = Client(self._process.socket, self._process.died)
        shown = bar(len(jobs), use_tqdm)
        try:
            # Ctrl-C ends the call, and its connections with it; the engine goes on.
            with closing(self._answers(client, jobs, held, False)) as answers:
                for number, status, answer in answers:
                    self._media.remove(held.pop(number))
                    results[number] = made(jobs[number], status, answer)
                    shown.update(1)
        finally:
            shown.close()
            for files in held.values():
                self._media.remove(files)
        return [output for outputs in results for output in outputs]

    def _stream(self, jobs, use_tqdm):
        news, held = queue.SimpleQueue(), {}
        client = Client(self._process.socket, self._process.died)

        def follow():
            growing = [_outputs().Growing(job.prompt, job.n) for job in jobs]
            try:
                with closing(self._answers(client, jobs, held, True)) as answers:
                    for number, status, event in answers:
                        if status is not None:
                            news.put((number, None, True))
                        elif growing[number].take(event):
                            news.put((number, growing[number].outputs, False))
                news.put(None)
            except BaseException as error:  # noqa: BLE001  the reader raises it
                news.put(error)

        reader = threading.Thread(target=follow, name="tern", daemon=True)
        shown = bar(len(jobs), use_tqdm)
        state = [[None] * job.n for job in jobs]
        try:
            reader.start()
            while True:
                some = [news.get()]
                while not news.empty():  # what has come meanwhile is one item
                    some.append(news.get())
                changed = False
                for item in some:
                    if isinstance(item, BaseException):
                        raise item
                    if item is None:
                        break
                    number, outputs, end = item
                    if end:
                        self._media.remove(held.pop(number))
                        shown.update(1)
                    else:
                        state[number], changed = outputs, True
                if changed:
                    yield [output for outputs in state for output in outputs]
                if item is None:
                    return
        finally:
            client.close()
            reader.join()
            shown.close()
            for files in held.values():
                self._media.remove(files)


class _Job:
    """A request: `make()` gives its body and the files made for it, when its turn comes; `n`: how many answers."""

    def __init__(self, prompt, path, make, n=1):
        self.prompt, self.path, self.make, self.n = prompt, path, make, n


def _outputs():
    """The module, which is imported late: LLM() starts the program before."""
    from tern import outputs

    return outputs


def _made(job, status, answer):
    if status == 200:
        return _outputs().from_answer(job.prompt, answer)
    return [_outputs().refused(job.prompt, status, answer["error"]["message"]) for _ in range(job.n)]


def _params_for(count, given):
    if given is None:
        from tern.sampling_params import SamplingParams

        given = SamplingParams()
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise ValueError(f"{count} prompts and {len(given)} sampling_params: one for all, or one for each")
    return list(given)
