"""Sessions of hosted agents through the SDKs: `anthropic URL STEP...` or `openai URL STEP...`; each
step prints what the SDK read."""

import sys

SESSION = "sesn_011CZkZ"


def anthropic(url, steps):
    import anthropic as sdk

    sessions = sdk.Anthropic(base_url=url, api_key="sk-ant-api03-" + "0" * 40).beta.sessions
    for step in steps:
        if step == "create":
            made = sessions.create(agent="agent_1", environment_id="env_1")
            print(step, made.id)
        elif step == "send":
            content = [{"type": "text", "text": "Hi"}]
            sent = [{"type": "user.message", "content": content}]
            print(step, len(sessions.events.send(SESSION, events=sent).data or ()))
        elif step == "fetch":
            print(step, sessions.retrieve(SESSION).usage.to_json(indent=None))
        elif step == "archive":
            print(step, sessions.archive(SESSION).usage.to_json(indent=None))
        elif step == "stream":
            with sessions.events.stream(SESSION) as stream:
                print(step, [event.type for event in stream])
        elif step == "list":
            print(step, [event.type for event in sessions.events.list(SESSION)])


def openai(url, steps):
    import openai as sdk

    sessions = sdk.OpenAI(base_url=url + "/v1", api_key="sk-" + "0" * 40).beta.agents.sessions
    for step in steps:
        if step == "fetch":
            print(step, sessions.retrieve("as_1").usage.to_json(indent=None))
        elif step == "turns":
            print(step, [turn.id for turn in sessions.turns.list("as_1")])
        elif step == "stream":
            with sessions.events.stream("as_1") as stream:
                print(step, [event.type for event in stream])


{"anthropic": anthropic, "openai": openai}[sys.argv[1]](sys.argv[2], sys.argv[3:])
