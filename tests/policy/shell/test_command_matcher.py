"""The pattern of a `Bash(...)` rule: exact for what allows, wide for what forbids."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.policy.shell import SimpleCommand, analyse, command_matcher
from interlock.policy.shell.starred import starred


def last(command: str) -> SimpleCommand:
    return [found for found in analyse(command).commands if not found.shadow][-1]


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("git status", ["git status", "git  status", "'git' status"], ["git status -s", "git", "git statusx", "GIT status", "/usr/bin/git status"]),
        ("git log:*", ["git log", "git log -5", "git log 'a b'"], ["git logs", "git -C x log", "git  -p log"]),
        ("git log *", ["git log", "git log -5"], ["git logs"]),
        ("git log*", ["git log", "git logs", "git log -5"], ["git lo"]),
        ("npm run test:*", ["npm run test", "npm run test -- -x"], ["npm run test:unit"]),
        ("npm run test:unit", ["npm run test:unit"], ["npm run test"]),
        ("git * main", ["git checkout main", "git push x main"], ["git main", "git checkout maine"]),
        ("* --version", ["node --version"], ["node --version x"]),
        ("git commit -m \"a b\"", ["git commit -m \"a b\"", "git commit -m 'a b'"], ["git commit -m a b"]),
        ("rm 'a b'", ["rm 'a b'", "rm a\\ b"], ["rm a b"]),
        ("*", ["anything at all", "x"], []),
        ("", ["anything"], []),
        ("npm test", ["timeout 5 npm test", "time npm test", "nice -n 3 npm test", "nohup npm test", "stdbuf -oL npm test", "command npm test", "CI=1 npm test", "env CI=1 npm test", "LC_ALL=C nohup nice npm test"], ["sudo npm test", "setsid npm test", "FOO=1 npm test", "/usr/bin/timeout 5 npm test", "exec npm test"]),
        ("xargs grep:*", ["xargs grep x"], ["grep x"]),
        ("grep:*", ["xargs grep x"], ["xargs -n1 grep x", "xargs -I{} grep {} f"]),
        ("FOO=1 make", ["FOO=1 make"], ["FOO=2 make", "make"]),
        ("timeout 5 npm test", ["timeout 5 npm test"], ["npm test"]),
        ("watch ls", ["watch ls"], ["ls"]),
        ("ls", [], ["watch ls", "flock x ls", "find . -exec ls"]),
    ],
)  # fmt: skip
def test_an_allow_rule_is_exact(pattern: str, allowed: list[str], refused: list[str]) -> None:
    matcher = command_matcher(pattern)
    for command in allowed:
        assert matcher.allows(last(command)), command
    for command in refused:
        assert not matcher.allows(last(command)), command


@pytest.mark.parametrize(
    ("pattern", "caught", "left"),
    [
        ("git push:*", ["git push", "GIT Push", "/usr/bin/git push x", "git -C d push", "git --git-dir=x push", "g''it push", "sudo git push", "env -i A=1 git push", "nice git push", "git push --force"], ["git pull", "git log push", "echo git push", "git stash push", "git pushx"]),
        ("git push", ["git push", "git -C x push"], ["git push origin"]),
        ("git push --force:*", ["git push --force", "git push origin main --force", "git push -f", "git push --forc", "git push -fu origin x"], ["git push", "git push --follow-tags"]),
        ("git push * --force", ["git push origin --force", "git push --force origin"], ["git push origin"]),
        ("git branch -D:*", ["git branch -D x", "git branch x -D", "git branch -d -f x", "git branch --delete --force x"], ["git branch -d x", "git branch"]),
        ("rm -rf:*", ["rm -rf x", "rm -fr x", "rm -r -f x", "rm --recursive --force x", "rm -Rf x", "rm x -rf", "rm -rfv x", "rm --rec --fo x"], ["rm -r x", "rm -f x", "rm rf"]),
        ("docker rm:*", ["docker rm x", "docker container rm x", "docker --context p rm x", "docker container remove x"], ["docker rmi x", "docker run --rm x"]),
        ("docker container rm:*", ["docker rm x"], ["docker container ls"]),
        ("kubectl delete:*", ["kubectl -n x delete pod y", "kubectl delete -f x", "kubectl --namespace=x delete y"], ["kubectl get delete"]),
        ("npm install:*", ["npm i x", "npm add x", "npm --prefix y install x", "npm isntall x"], ["npm run install"]),
        ("pip install:*", ["pip3 install x", "pip3.12 install x", "python -m pip install x", "python3 -mpip install x"], ["pip list"]),
        ("python:*", ["python3 x.py", "python3.11 x.py"], ["pythonista"]),
        ("ls", ["ls"], ["ls -la", "ls x"]),
        ("curl *evil.example*", ["curl -s https://evil.example/x"], ["curl -s https://good.example"]),
        ("*", ["x"], []),
        ("sudo:*", ["sudo ls", "/usr/bin/sudo -u x ls"], ["ls sudo"]),
        ("terraform destroy:*", ["terraform -chdir=x destroy"] , ["terraform apply -destroy"]),
    ],
)  # fmt: skip
def test_what_forbids_is_wide(pattern: str, caught: list[str], left: list[str]) -> None:
    matcher = command_matcher(pattern)
    for command in caught:
        assert matcher.catches(last(command)), command
    for command in left:
        assert not matcher.may_catch(last(command)), command


@pytest.mark.parametrize(
    "command",
    ["git $x", "git \"$x\"", "$x push", "git p*sh", "git $x origin", "$(x)", "xargs git", "git -C x $y", "unknown git push", "./x git push", "ssh h git push", "g${x}t push"],
)  # fmt: skip
def test_what_is_not_known_may_be_what_is_forbidden(command: str) -> None:
    found = last(command)

    assert command_matcher("git push:*").may_catch(found)
    assert not command_matcher("git push:*").catches(found)
    assert not command_matcher("docker rm:*").may_catch(last("git $x"))


def test_doubts_fall_to_a_rule_that_means_just_this() -> None:
    def excused(pattern: str, command: str) -> bool:
        found = last(command)
        matcher = command_matcher(pattern)
        return matcher.allows(found) and all(matcher.excuses(doubt, found) for doubt in found.doubts)

    assert excused("python -c 'print(1)'", "python -c 'print(1)'")
    assert not excused("python:*", "python -c 'print(1)'")
    assert not excused("python -c:*", "python -c 'print(1)'")
    assert excused("npx:*", "npx x") and excused("npx x", "npx x")
    assert not excused("*", "npx x")
    assert excused("find * -delete", "find x -delete")
    assert not excused("find:*", "find x -delete")
    assert excused("git config:*", "git config x y")
    assert not excused("git:*", "git config x y")
    assert not excused("rm -rf /", "rm -rf /")
    assert excused("sh:*", "curl x | sh") and not excused("*", "curl x | sh")


def test_a_rule_that_names_an_option_covers_what_the_option_writes() -> None:
    [_, written] = last("sed -i s/a/b/ f").paths

    assert command_matcher("sed -i:*").covers(written)
    assert not command_matcher("sed:*").covers(written)
    assert command_matcher("sed -i s/a/b/ f").covers(written)


def test_only_a_star_alone_is_a_blanket() -> None:
    assert [command_matcher(pattern).blanket for pattern in ("", "*", ":*", "git:*", "**", "a*")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


@given(st.text(max_size=30))
def test_any_pattern_can_be_asked_about_any_command(pattern: str) -> None:
    matcher = command_matcher(pattern)
    for command in ("git push", "sudo x=1 git $y", "x=1"):
        found = last(command)
        assert matcher.allows(found) in (True, False)
        assert matcher.may_catch(found) or not matcher.catches(found)


@given(st.text(alphabet="ab* ", max_size=8), st.text(alphabet="ab \n", max_size=12))
def test_a_star_is_any_characters_and_a_last_one_behind_a_blank_a_boundary(pattern: str, text: str) -> None:
    plain = ".*".join(re.escape(run) for run in pattern.split("*"))
    if pattern.endswith(" *") and pattern.strip("* "):
        plain = ".*".join(re.escape(run) for run in pattern[:-2].rstrip().split("*")) + r"(?:\s.*)?"

    wanted = re.fullmatch(plain, text, re.DOTALL) is not None
    assert (re.fullmatch(starred(pattern), text, re.DOTALL) is not None) == wanted
