"""Small talk: fixed replies to many phrasings, so that a plain greeting gets a plain and truthful answer.

These dialogues are part of the training data and are not scored: there is too little of them to hold anything out.
"""
from wordlists import CITIES, NAMES, WORDS

ABILITIES = ("I can add, subtract, multiply and divide small numbers, sort and reverse lists of words, count, "
             "convert dates and units, and fill JSON from a sentence.")
UNKNOWN = ("I am only a small demonstration model, so I cannot help with that. " + ABILITIES)

INTENTS = {
    "hello": (["Hello", "Hello!", "Hello.", "Hi", "Hi!", "Hi there", "Hi there!", "Hey", "Hey!", "Hello there", "Hello there!", "Good morning",
               "Good morning!", "Good evening", "Good evening!", "Good afternoon", "Good day", "Greetings", "Hello, how are you?", "Hi, are you there?",
               "hello", "hi", "hey", "Hello world", "Hello, world!", "Say hello", "Say hello.", "Say hi", "Say hi!", "Hey there", "Anybody here?"],
              ["Hello! How can I help you?"]),
    "wellbeing": (["How are you?", "How are you doing?", "How are you today?", "How is it going?", "Are you well?", "how are you", "What's up?",
                   "How do you feel?", "How was your day?"],
                  ["I am fine, thank you. How can I help you?"]),
    "identity": (["Who are you?", "What are you?", "Who is this?", "What is your name?", "Tell me about yourself.", "Introduce yourself.", "who are you",
                  "Please introduce yourself.", "What's your name?", "Which model are you?", "What model are you?", "Are you a robot?", "Are you an AI?",
                  "Who am I talking to?", "Describe yourself.", "Are you human?", "Are you a person?", "What kind of model are you?", "Who made you?",
                  "Who trained you?", "Do you have a name?", "Are you a language model?", "How big are you?", "Introduce yourself in one sentence."],
                 ["I am {name}, a small demonstration language model with about seven million parameters."]),
    "abilities": (["What can you do?", "What can you do for me?", "How can you help me?", "Help", "Help!", "Help me", "What do you know?", "Can you help me?",
                   "What are your abilities?", "What are you able to do?", "what can you do", "What tasks can you do?", "What are you good at?",
                   "List your skills.", "How do I use you?", "What should I ask you?", "Give me an example of what you can do.", "help",
                   "What are you for?", "What questions can I ask?", "I need help.", "Can I ask you a question?", "I have a question."],
                  [ABILITIES]),
    "thanks": (["Thanks", "Thanks!", "Thank you", "Thank you!", "Thank you very much.", "Great, thanks!", "Thanks a lot!", "thanks", "Perfect, thank you.",
                "Nice, thanks.", "That helps, thank you.", "Well done!", "Good job.", "Great!", "Perfect.", "Good answer.", "Correct!"],
               ["You are welcome."]),
    "bye": (["Bye", "Bye!", "Goodbye", "Goodbye!", "See you", "See you later", "See you tomorrow!", "Good night", "bye", "That is all.", "That's all, thanks.",
             "I have to go.", "Have a nice day!"],
            ["Goodbye!"]),
    "unknown": (["What is the capital of {city}?", "What is the capital of France?", "Tell me about {city}.", "Where is {city}?", "Who is {person}?",
                 "Tell me a joke.", "Tell me a joke", "Tell me a story.", "Tell me a story about a {word}.", "Write a poem.", "Write a poem about a {word}.",
                 "Write a short story about a {word}.", "What is a {word}?", "Explain what a {word} is.", "What is the weather today?",
                 "What is the weather like in {city}?", "What time is it?", "What day is it today?", "What is the meaning of life?", "Who is the president?",
                 "Translate {word} into French.", "Translate this into German: {word}", "Write a program that prints {word}.", "Write Python code.",
                 "Write a function in C++.", "Explain quantum physics.", "What is machine learning?", "What is the speed of light?", "Why is the sky blue?",
                 "Recommend a book.", "Recommend a good film.", "How do I cook {word}?", "How do I bake a cake?", "How many people live in {city}?",
                 "What should I eat today?", "Plan a trip to {city}.", "Give me some advice.", "Sing a song.", "Summarize this text.", "What do you think about {word}?",
                 "Do you like {word}?", "Do you love me?", "Is there life on Mars?", "What is the news?", "Play a game with me.", "Write an email to {person}.",
                 "What is the tallest mountain?", "What is the largest country?", "Who wrote Hamlet?", "Who won the game?", "When was {city} founded?",
                 "Explain the theory of relativity.", "What is a transformer?", "What is an LLM?", "What is a GPU?", "Tell me something interesting.",
                 "What is the square root of 2?", "Solve this equation.", "What is your favorite color?", "What is love?", "How old are you?",
                 "Give me a recipe.", "Draw a {word}.", "Describe a {word}.", "Tell me a fact about a {word}.", "Who invented the {word}?"],
                [UNKNOWN]),
}

SYSTEM_PROMPTS = ["You are a helpful assistant.", "You are a helpful assistant.", "You are a helpful, honest assistant.", "You are a friendly assistant.",
                  "You are a small demonstration model.", "Be brief.", "Answer briefly.", "Answer the question.", "Reply with the answer only.",
                  "You are an assistant that answers short questions.", "Follow the instructions of the user.", "You are Tern.",
                  "You are a careful calculator and assistant.", "Keep your answers short and exact."]
DEFAULT_NAME = "Tern Demo"


def small_talk(rng, name=DEFAULT_NAME):
    """One (user text, reply) pair; `name` is what the model calls itself."""
    intent = rng.choice(("hello", "hello", "wellbeing", "identity", "identity", "abilities", "thanks", "bye", "unknown", "unknown", "unknown"))
    texts, replies = INTENTS[intent]
    text = rng.choice(texts).format(city=rng.choice(CITIES), person=rng.choice(NAMES), word=rng.choice(WORDS))
    return text, rng.choice(replies).format(name=name)


def system_prompt(rng):
    """A system text and the name that the model has under it."""
    if rng.random() < 0.25:
        name = rng.choice(NAMES)
        return rng.choice(("Your name is {}.", "You are {}.", "You are an assistant called {}.", "You are {}, a helpful assistant.")).format(name), name
    return rng.choice(SYSTEM_PROMPTS), DEFAULT_NAME
