"""What counts as a change of a client, and what is only another version."""

from tests.clients.changes import differences

SEEN = {
    "version": ["1.0"],
    "requests": ["POST api.openai.com/v1/responses; headers accept; body model"],
    "usage": ["stated [[1001, 11]]", "recorded [[1001, 11]]"],
    "end": ["exit 0", "complete"],
}


def test_another_version_is_a_line_of_its_own():
    assert differences(SEEN, SEEN | {"version": ["1.1"]}) == [
        "version no more: 1.0",
        "version now: 1.1",
    ]


def test_what_came_and_what_went_is_named():
    asked = "POST api.openai.com/v1/responses; headers accept x-new; body model"
    now = SEEN | {"requests": [asked], "end": ["exit 1", "upstream_cut"]}
    assert differences(SEEN, now) == [
        f"requests no more: {SEEN['requests'][0]}",
        f"requests now: {asked}",
        "end no more: exit 0",
        "end no more: complete",
        "end now: exit 1",
        "end now: upstream_cut",
    ]


def test_a_client_that_was_never_seen_is_new_in_all():
    assert len(differences({}, SEEN)) == 6
