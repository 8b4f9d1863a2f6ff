#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
tutorial.py BUILD_DIR [--update]: the tutorial, done as its reader would.

Every ```console block of docs/tutorial.md is run: the lines that begin with "$ " are commands, what follows them
is compared with what they print. Blocks marked "terminal 1" start, "terminal 2" runs beside them; then terminal 1
must end by itself, or, if its last line is ^C, is interrupted. `export` and `cd` hold for all terminals.
Every ```c block must stand, line for line, in one of the examples' files.
docs/tutorial.zh.md must have the same blocks.

In outputs hexadecimal numbers and times differ from run to run. A time matches any time; a number of the text
stands for one number of the run, the same wherever it occurs: the QPN told in the exchange must be the QPN in the
packets. The port 7471 is replaced by a free one.

--update writes the outputs of this run, and the blocks of the examples, into both texts.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from terminal import Command

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENGLISH, CHINESE = (os.path.join(SOURCE, "docs", name) for name in ("tutorial.md", "tutorial.zh.md"))
PORT = "7471"
PATIENCE = 120
ATTEMPTS = 5
ADDRESS_LEN = len("0xffffffff")
TOKEN = re.compile(r"(?P<hex>0x[0-9a-f]+|\b[0-9a-f]{16}\b)|(?P<time>\b\d+\.\d{6}\b|\b[\d.]+(?= ms\b))")
RETRANSMISSIONS = re.compile(r"(\d+) retransmission")


class Mismatch(Exception):
    """What was printed is not what the text says; slow if packets had to be sent again, which may be why."""

    def __init__(self, text, slow=False):
        super().__init__(text)
        self.slow = slow


class Block:
    """A fenced block: lines[first:last] of the file are its inside."""

    def __init__(self, info, first, lines):
        words = info.split()
        self.lang = words[0] if words else ""
        self.terminal = words[2] if words[1:2] == ["terminal"] else ""
        self.info, self.first, self.lines = info, first, lines

    def steps(self):
        """[command, [expected output line...]] of a console block."""
        steps, more = [], False
        for line in self.lines:
            if more:
                steps[-1][0] += "\n" + line
            elif line.startswith("$ "):
                steps.append([line[2:], []])
            elif steps:
                steps[-1][1].append(line)
            else:
                raise Mismatch(f"line {self.first + 1}: an output without a command")
            more = line.endswith("\\") and not steps[-1][1]
        return steps


def read_blocks(path):
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    blocks, start = [], None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
        else:
            blocks.append(Block(lines[start][3:].strip(), start + 1, lines[start + 1:number]))
            start = None
    if start is not None:
        raise Mismatch(f"{path}:{start + 1}: this block has no end")
    return blocks


class Session:
    """The reader's folder, and the terminals in it."""

    def __init__(self, build, folder):
        self.prefix, self.folder, self.values = "", folder, {}
        os.symlink(os.path.abspath(build), os.path.join(folder, "build"))
        shutil.copytree(os.path.join(SOURCE, "examples"), os.path.join(folder, "examples"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("ROCELINK_")}
        self.env.update(HOME=folder, LC_ALL="C.UTF-8")

    def start(self, command):
        script = self.prefix + command.replace(PORT, self.port)
        if re.match(r"(export|cd) ", command):
            self.prefix = script + "\n"
        return Command(["bash", "-c", script], env=self.env, cwd=self.folder)

    def printed(self, command):
        return command.output.decode("utf-8", "replace").replace(self.port, PORT).splitlines()

    def known(self, told, real):
        """Whether the text's number stands for this one, and this one only for it."""
        if self.values.setdefault(told, real) != real:
            return False
        # Two processes may have the same address.
        return len(real) > ADDRESS_LEN or [*self.values.values()].count(real) == 1

    def same(self, told, real):
        """Whether a line of the text says what was printed."""
        if TOKEN.sub("*", " ".join(told.split())) != TOKEN.sub("*", " ".join(real.split())):
            return False
        for mine, its in zip(TOKEN.finditer(told), TOKEN.finditer(real)):
            if mine.lastgroup != its.lastgroup:
                return False
            if mine.lastgroup == "hex" and not self.known(mine.group(), its.group()):
                return False
        return True

    def compare(self, where, told, real):
        if len(told) == len(real) and all(self.same(*pair) for pair in zip(told, real)):
            return
        again = [RETRANSMISSIONS.findall("\n".join(lines)) for lines in (told, real)]
        raise Mismatch("\n".join([f"{where}: the text says"] + ["    " + line for line in told] +
                                 ["and what was printed is"] + ["    " + line for line in real] +
                                 [f"where the text's numbers were {self.values}"]), slow=again[0] != again[1])


class Run:
    """Do all blocks; check(block, step, output lines) for each command."""

    def __init__(self, session, check):
        self.session, self.check = session, check
        self.background = None  # (block, step, command) of terminal 1

    def finish(self, block, step, command):
        ended = command.finish(PATIENCE)
        lines = self.session.printed(command)
        if not ended:
            raise Mismatch(f"line {block.first + 1}: {step[0]} does not end; it printed\n" + "\n".join(lines))
        self.check(block, step, lines + (["^C"] if step[1][-1:] == ["^C"] else []))

    def terminal_1(self, block):
        step, = block.steps()
        command = self.session.start(step[0])
        self.background = (block, step, command)
        if not command.first_words(PATIENCE):
            raise Mismatch(f"line {block.first + 1}: {step[0]} prints nothing")

    def end_terminal_1(self, interrupt):
        if not self.background:
            return
        block, step, command = self.background
        self.background = None
        if interrupt or step[1][-1:] == ["^C"]:
            command.signal(signal.SIGINT)
        if interrupt:
            command.finish(PATIENCE)
        else:
            self.finish(block, step, command)

    def block(self, block):
        if block.terminal == "1":
            self.terminal_1(block)
            return
        for step in block.steps():
            self.finish(block, step, self.session.start(step[0]))
        self.end_terminal_1(False)

    def scene(self, blocks):
        """Once more where packets were late: on a busy machine an acknowledgement may miss its time."""
        for attempt in range(ATTEMPTS):
            values = dict(self.session.values)
            try:
                for block in blocks:
                    self.block(block)
                return
            except Mismatch as mismatch:
                self.session.values = values
                if not mismatch.slow or attempt + 1 == ATTEMPTS:
                    raise
                print(f"packets were late, once more:\n{mismatch}", file=sys.stderr)
            finally:
                self.end_terminal_1(True)


def scenes(blocks):
    """The console blocks, cut before each terminal 1: what has to be repeated together."""
    result = [[]]
    for block in blocks:
        if block.lang == "console":
            if block.terminal == "1":
                result.append([])
            result[-1].append(block)
    return result


def run(build, blocks, check):
    with tempfile.TemporaryDirectory() as folder:
        session = Session(build, folder)
        runner = Run(session, lambda *printed: check(session, *printed))
        for scene in scenes(blocks):
            runner.scene(scene)


def check_quotes(blocks):
    sources = {}
    for name in sorted(os.listdir(os.path.join(SOURCE, "examples"))):
        if name.endswith(".c"):
            with open(os.path.join(SOURCE, "examples", name), encoding="utf-8") as file:
                sources[name] = "\n" + file.read()
    for block in blocks:
        if block.lang == "c" and not any("\n" + "\n".join(block.lines) + "\n" in text for text in sources.values()):
            raise Mismatch(f"line {block.first + 1}: these lines stand in no example:\n" + "\n".join(block.lines))
        if block.lang not in ("c", "console"):
            raise Mismatch(f"line {block.first}: a block is ```c or ```console, not ```{block.info}")


def check_translation(english, chinese):
    for mine, its in zip(english, chinese):
        if (mine.info, mine.lines) != (its.info, its.lines):
            raise Mismatch(f"tutorial.md:{mine.first} and tutorial.zh.md:{its.first} differ:\n" +
                           "\n".join(mine.lines) + "\n---\n" + "\n".join(its.lines))
    if len(english) != len(chinese):
        raise Mismatch(f"tutorial.md has {len(english)} blocks, tutorial.zh.md {len(chinese)}")


def write_blocks(path, blocks, contents):
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for block, content in reversed(list(zip(blocks, contents))):
        lines[block.first:block.first + len(block.lines)] = content
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


def update(build, english, chinese):
    printed = {}
    run(build, english, lambda _, block, step, lines: printed.setdefault((id(block), step[0]), lines))
    contents = [block.lines if block.lang != "console" else
                [line for step in block.steps()
                 for line in ["$ " + step[0], *printed[(id(block), step[0])]]] for block in english]
    contents = ["\n".join(lines).split("\n") for lines in contents]
    for path, blocks in ((ENGLISH, english), (CHINESE, chinese)):
        if len(blocks) == len(contents):
            write_blocks(path, blocks, contents)


def main():
    build = sys.argv[1]
    try:
        english, chinese = read_blocks(ENGLISH), read_blocks(CHINESE)
        check_quotes(english)
        if "--update" in sys.argv[2:]:
            update(build, english, chinese)
            return
        check_translation(english, chinese)
        run(build, english, lambda session, block, step, lines: session.compare(
            f"tutorial.md:{block.first + 1}: {step[0]}", step[1], lines))
    except Mismatch as mismatch:
        sys.exit(str(mismatch))
    commands = sum(len(block.steps()) for block in english if block.lang == "console")
    print(f"{commands} commands done as the text says, {len(english)} blocks the same in both languages")


if __name__ == "__main__":
    main()
