"""Configuration of a start does not become environment variables of Python tools."""

import json
from pathlib import Path

from tests.support.workdir import Workdir

SKILLS = """\
- id: odd
  name: Odd
  description: Tells of its surroundings.
  category: general
  config:
    DESK: {description: Which one.}
  tools:
    - name: surroundings
      description: What is there.
      input_schema: {type: object, properties: {}}
      python: odd_of_the_test:surroundings
"""

TOOL = """\
import os


def surroundings(context):
    return {"variable": os.environ.get("DESK"), "config": context.config["DESK"]}
"""

WORKFLOW = """\
id: w
name: W
entry: a
nodes:
  a: {name: A, instruction: Look., skills: [odd]}
edges: []
"""

SCRIPT = {"turns": {"a": [{"tool_calls": [{"tool": "surroundings", "input": {}}]}, {"text": "Done."}]}}


def test_configuration_of_a_start_is_not_an_environment_variable_of_tools(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workdir.write("skills.yaml", SKILLS)
    workdir.write("odd_of_the_test.py", TOOL)
    workdir.write("w.yaml", WORKFLOW)
    script = workdir.write("script.json", json.dumps(SCRIPT))
    done = workdir.run("run", "w.yaml", "--script", script, "--set", "DESK=of the start", "--run-id", "r")
    assert done.exit_code == 0, done.stderr
    trace = workdir.run("trace", "r", "--format", "events")
    events = [json.loads(line) for line in trace.stdout.splitlines()]
    (result,) = (event["payload"]["output"] for event in events if event["type"] == "tool.result")
    assert result == {"variable": None, "config": "of the start"}
