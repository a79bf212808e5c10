"""Files that users name: what cannot be read is exit 66 with the reason, what says nonsense 78 with the place."""
import json
import unittest

from pipeline import BAD_PLAN, NO_INPUT, USAGE, Golden, PipelineTest, call, read_plan


class InputFilesTest(PipelineTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("gpt")
        self.model = [self.golden.model, *self.golden.arguments(), "--dry-run"]

    def refused(self, code, part, *arguments):
        process = call("pipec", *arguments)
        self.check_exit(process, code)
        self.assertEqual(process.stdout, "")
        self.assertIn(part, process.stderr)
        return process

    def test_a_folder_or_nothing_in_place_of_a_file(self):
        schedule = ["schedule", "1f1b", "--stages", "2", "--microbatches", "4"]
        for path, why in ((self.folder, "Is a directory"), (self.folder / "missing", "No such file")):
            for words in ([*self.model, "--cpus", "1x2", "--stage-file", path],
                          [*self.model, "--cpus", "1x2", "--profile", path],
                          [*self.model, "--cpus", "1x2", "--strategy", f"file:{path}"],
                          [*self.model, "--cluster", path],
                          [*schedule, "--costs", path], ["schedule", *schedule[2:], "--check", path],
                          ["partition", path, "--devices", "4"]):
                self.refused(NO_INPUT, f"{path}: {why}", *words)

    def test_stage_files_of_every_shape_of_strategy(self):
        """A plan.json given back as stage file makes the same stages, also with chunks or two copies of the weights."""
        for strategy in ("1f1b", "interleaved-1f1b", "zb-v", "chimera"):
            words = [*self.golden.arguments(), "--cpus", "1x2", "--strategy", strategy, "--quiet"]
            first = self.compile(self.golden.model, *words)
            again = self.compile(self.golden.model, *words, "--stage-file", first / "plan.json")
            self.assertEqual([s["first_node"] for s in read_plan(first)["stages"]],
                             [s["first_node"] for s in read_plan(again)["stages"]], strategy)
            self.assertEqual([s["ranks"] for s in read_plan(first)["stages"]],
                             [s["ranks"] for s in read_plan(again)["stages"]], strategy)
            auto = self.compile(self.golden.model, *self.golden.arguments(), "--cpus", "1x2", "--quiet", "--stage-file",
                                first / "plan.json")
            self.assertEqual([s["first_node"] for s in read_plan(first)["stages"]],
                             [s["first_node"] for s in read_plan(auto)["stages"]], strategy)
        self.refused(USAGE, "strategy dp has one stage, the stage file has 2: take another --strategy", *self.model,
                     "--cpus", "1x2", "--strategy", "dp", "--stage-file", first / "plan.json")

    def test_stage_files_of_a_number_of_stages_that_a_strategy_cannot_have(self):
        file = self.folder / "stages.json"
        for count, devices in ((3, 3), (3, 2), (1, 1), (5, 3)):
            file.write_text(json.dumps({"stages": [{"first_node": 4 * i} for i in range(count)]}))
            words = [*self.model, "--cpus", devices, "--stage-file", file, "--strategy"]
            for strategy in ("zb-v", "v-half", "v-min", "v-flex", "1f1b-v", "dualpipe-v", "interleaved-1f1b",
                             "interleaved-zb", "looped-bfs"):
                self.refused(USAGE, f"strategy '{strategy}' puts 2 stages on each device; the split has {count}, which "
                             "is not a multiple; take another --strategy or another split", *words, strategy)
            self.refused(USAGE, f"--stages 2: the stage file has {count}; leave --stages out", *words, "1f1b", "--stages", 2)
            self.refused(USAGE, f"--replicas 1-1 is for 2 stages, the stage file has {count}; give a number for each, or",
                         *words, "1f1b", "--replicas", "1-1")
            if count <= devices:
                self.check_exit(call("pipec", *words, "auto"), 0)

    def test_stage_files_that_say_nonsense(self):
        file = self.folder / "stages.json"
        for stages, part in (([{"first_node": -1}], "first_node must be a whole number"),
                             ([{"first_node": "0"}], "first_node must be a whole number"),
                             ([{"first_node": 0, "ranks": 3}], "ranks must be a list"),
                             ([{"first_node": 0, "replicas": 0}], "replicas from 1"),
                             ([{"first_node": 0, "replicas": "two"}], "replicas from 1"),
                             ([{"first_node": 3}], "first_node must start at 0"),
                             ([{"first_node": 0, "replica": 2}], "a stage has no member 'replica' (did you mean replicas?); "
                              "it has first_node and replicas"),
                             ([{}], "first_node")):
            file.write_text(json.dumps({"stages": stages}))
            self.refused(BAD_PLAN, part, *self.model, "--cpus", "1x2", "--stage-file", file)
        for text, part in (('{"stages": [}', f"stage file {file}:1: "), ('{"stage": []}', "as a plan.json is"), ("[3]", "as a plan.json is")):
            file.write_text(text)
            process = self.refused(BAD_PLAN, part, *self.model, "--cpus", "1x2", "--stage-file", file)
            self.assertNotIn("exception", process.stderr)

    def test_a_cluster_file_says_its_device(self):
        file = self.folder / "cluster.json"
        file.write_text(json.dumps({"levels": [{"count": 2, "bandwidth_GBps": 5}], "device": "cpu"}))
        self.check_exit(call("pipec", *self.model, "--cluster", file), 0)
        self.refused(USAGE, "--device and --cluster", *self.model, "--cluster", file, "--device", "cpu")


if __name__ == "__main__":
    unittest.main()
