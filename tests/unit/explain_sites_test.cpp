// Whose code a frame is, what a call into CUDA is for, and how windows are cut into phases.

#include <string>

#include "tests/support/run_builder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/calls.hpp"
#include "fullwatt/explain/samples.hpp"
#include "fullwatt/explain/sites.hpp"
#include "fullwatt/explain/timeline.hpp"
#include "fullwatt/explain/windows.hpp"

namespace fullwatt::explain {
namespace {

using model::Phase;

ProcessFact process_with(std::string main) {
  ProcessFact process;
  process.main = std::move(main);
  process.prefixes = {"/usr/lib/python3.11/", "/venv/lib/python3.11/", "/opt/build/torch/"};
  return process;
}

TEST(Owner, FilesBelongToTheUserALibraryPytorchPythonOrFullwatt) {
  const auto process = process_with("/home/ada/train.py");
  EXPECT_EQ(owner_of("/home/ada/train.py", process), Owner::user);
  EXPECT_EQ(owner_of("/home/ada/lib/model.py", process), Owner::user);
  EXPECT_EQ(owner_of("/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", process), Owner::torch);
  EXPECT_EQ(owner_of("/opt/build/torch/optim/adam.py", process), Owner::torch);
  EXPECT_EQ(owner_of("/tmp/torchinductor_ada/ab/cab.py", process), Owner::torch);
  EXPECT_EQ(owner_of("/venv/lib/python3.11/site-packages/torchvision/ops/boxes.py", process), Owner::library);
  EXPECT_EQ(owner_of("/venv/lib/python3.11/site-packages/numpy/core/numeric.py", process), Owner::library);
  EXPECT_EQ(owner_of("/usr/lib/python3.11/threading.py", process), Owner::standard);
  EXPECT_EQ(owner_of("<frozen importlib._bootstrap>", process), Owner::standard);
  EXPECT_EQ(owner_of("/opt/fullwatt/python/fullwatt/agent.py", process), Owner::fullwatt);
}

TEST(Owner, ANotebooksCellsAndAProgramWithoutAFileAreTheUsers) {
  EXPECT_EQ(owner_of("<ipython-input-3-abc>", process_with("/venv/lib/python3.11/site-packages/ipykernel_launcher.py")),
            Owner::user);
  EXPECT_EQ(owner_of("<string>", process_with("")), Owner::user);
  EXPECT_EQ(owner_of("<string>", process_with("/home/ada/train.py")), Owner::standard);
}

TEST(Owner, AnInstalledPackageThatWasStartedIsTheUsers) {
  const auto process = process_with("/venv/lib/python3.11/site-packages/mytrain/cli.py");
  EXPECT_EQ(owner_of("/venv/lib/python3.11/site-packages/mytrain/model.py", process), Owner::user);
  EXPECT_EQ(owner_of("/venv/lib/python3.11/site-packages/other/model.py", process), Owner::library);
}

TEST(Site, IsReadFromTheRecordersText) {
  const auto site = parse_site("/home/ada/a:b/train.py:12:main");
  EXPECT_EQ(site.file, "/home/ada/a:b/train.py");
  EXPECT_EQ(site.line, 12);
  EXPECT_EQ(site.function, "main");
  for (const auto* broken : {"", ":", "train.py", "train.py:12", "train.py:x:main"}) {
    EXPECT_FALSE(parse_site(broken).known()) << broken;
  }
}

TEST(Sites, TheLineIsTheUsersInnermostFrame) {
  model::TrainingProcess process;
  const model::Site torch{"/venv/lib/python3.11/site-packages/torch/nn/functional.py", 5, "relu"};
  const model::Site module{"/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 9, "_call_impl"};
  const model::Site library{"/venv/lib/python3.11/site-packages/lightning/loop.py", 7, "run"};
  const model::Site inner{"/home/ada/model.py", 3, "forward"};
  const model::Site outer{"/home/ada/train.py", 8, "main"};
  const model::Site standard{"/usr/lib/python3.11/contextlib.py", 1, "inner"};
  process.stacks = {{torch, inner, module, outer}, {standard, torch, library}, {standard}, {standard, inner, outer}};
  ProcessFacts facts;
  facts.process = process_with("/home/ada/train.py");
  const Sites sites(process, facts);
  EXPECT_EQ(sites.site(sites.moment(0).line), inner);
  EXPECT_EQ(sites.moment(0).running, Owner::torch);
  EXPECT_TRUE(sites.moment(0).in_module);
  EXPECT_EQ(sites.site(sites.moment(1).line), library) << "no frame is the user's";
  EXPECT_FALSE(sites.site(sites.moment(2).line).known());
  EXPECT_EQ(sites.moment(3).running, Owner::user) << "the standard library works for its caller";
  EXPECT_EQ(sites.moment(77).line, 0U) << "a stack that is not there";
}

TEST(Sites, CopyingLoggingAndKeepingAModelIsNoComputing) {
  const std::string torch = "/venv/lib/python3.11/site-packages/torch/";
  const model::Site user{"/home/ada/train.py", 8, "main"};
  const model::Site copy{"/usr/lib/python3.11/copy.py", 153, "deepcopy"};
  const model::Site module{torch + "nn/modules/module.py", 9, "state_dict"};
  const model::Site call{torch + "nn/modules/module.py", 12, "_wrapped_call_impl"};
  const model::Site clone{torch + "storage.py", 5, "clone"};
  const model::Site writer{torch + "utils/tensorboard/writer.py", 5, "add_histogram"};
  const model::Site layer{torch + "nn/functional.py", 7, "linear"};
  model::TrainingProcess process;
  process.stacks = {
      {clone, copy, user}, {module, user}, {clone, writer, user}, {layer, call, user}, {layer, user, copy}};
  ProcessFacts facts;
  facts.process = process_with("/home/ada/train.py");
  const Sites sites(process, facts);
  for (const std::uint32_t kept : {0U, 1U, 2U}) {
    EXPECT_EQ(sites.moment(kept).running, Owner::library) << kept;
    EXPECT_FALSE(sites.moment(kept).in_module) << kept;
    EXPECT_EQ(sites.site(sites.moment(kept).line), user) << kept;
  }
  EXPECT_EQ(sites.moment(3).running, Owner::torch);
  EXPECT_TRUE(sites.moment(3).in_module);
  EXPECT_EQ(sites.moment(4).running, Owner::torch) << "what lies behind the user's line is not what runs";
}

TEST(Calls, AreKnownByName) {
  const std::pair<const char*, CallCategory> rows[] = {
      {"cudaLaunchKernel", CallCategory::launch},
      {"cudaLaunchKernelExC_v11060", CallCategory::launch},
      {"cuLaunchKernel", CallCategory::launch},
      {"cudaGraphLaunch_v10000", CallCategory::launch},
      {"cudaMemsetAsync", CallCategory::launch},
      {"cudaMemcpyAsync_v3020", CallCategory::copy},
      {"cuMemcpyHtoDAsync_v2", CallCategory::copy},
      {"cudaMemcpy", CallCategory::sync},
      {"cudaStreamSynchronize", CallCategory::sync},
      {"cudaDeviceSynchronize", CallCategory::sync},
      {"cuEventSynchronize", CallCategory::sync},
      {"cudaMalloc", CallCategory::allocator},
      {"cudaHostAlloc", CallCategory::allocator},
      {"cuMemCreate", CallCategory::allocator},
      {"cudaFree", CallCategory::allocator},
      {"cuModuleLoadData", CallCategory::module_load},
      {"cuLibraryLoadData", CallCategory::module_load},
      {"cudaGetDevice", CallCategory::other},
      {"cudaStreamIsCapturing", CallCategory::other},
      {"cudaEventRecord", CallCategory::other},
  };
  for (const auto& [name, category] : rows) EXPECT_EQ(classify_call(name), category) << name;
}

model::PhaseSpan span(Phase phase, std::uint64_t start, std::uint64_t end) {
  return {phase, start, end, 0};
}

TEST(Phases, CoverTheRangeAndTheInnermostCounts) {
  model::TrainingProcess process;
  process.phases = {span(Phase::data, 10, 20), span(Phase::backward, 30, 60), span(Phase::garbage, 40, 45),
                    span(Phase::optimizer, 60, 70), span(Phase::data, 95, 120)};
  const auto pieces = phases_in(process, {0, 100});
  const std::pair<std::uint64_t, HostPhase> expected[] = {
      {10, HostPhase::rest},      {20, HostPhase::data},    {30, HostPhase::rest},
      {40, HostPhase::backward},  {45, HostPhase::garbage}, {60, HostPhase::backward},
      {70, HostPhase::optimizer}, {95, HostPhase::rest},    {100, HostPhase::data}};
  ASSERT_EQ(pieces.size(), std::size(expected));
  std::uint64_t start = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].range.start_ns, start);
    EXPECT_EQ(pieces[i].range.end_ns, expected[i].first);
    EXPECT_EQ(pieces[i].phase, expected[i].second) << i;
    start = pieces[i].range.end_ns;
  }
}

TEST(Gaps, AreWhatNothingCovers) {
  std::vector<model::GpuActivity> activities(3);
  activities[0].start_ns = 10, activities[0].end_ns = 20;
  activities[1].start_ns = 15, activities[1].end_ns = 30;
  activities[2].start_ns = 50, activities[2].end_ns = 200;
  const auto gaps = gaps_between(united(activities), {0, 100});
  ASSERT_EQ(gaps.size(), 2U);
  EXPECT_EQ(gaps[0].end_ns, 10U);
  EXPECT_EQ(gaps[1].start_ns, 30U);
  EXPECT_EQ(gaps[1].end_ns, 50U);
  EXPECT_EQ(gaps_between({}, {5, 9}).front().length_ns(), 4U);
}

TEST(Windows, WhoseStepRecordsAreGoneAreCutByTheOptimisersPhases) {
  tests::RunBuilder builder;
  tests::Script script;
  script.python(1, 2.0).begin(Phase::optimizer, 9).python(9, 1.0).end();
  builder.plain(script, 10).times(script, 6).plain(script, 10);
  auto process = builder.build().processes.front();
  process.steps.erase(process.steps.begin(), process.steps.begin() + 20);
  const auto windows = step_windows(process, training_steps(process), model::RecordedWindow::Mode::times);
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(windows.front().steps(), 6);
}

TEST(Windows, ThatLostRecordsAreLeftOutWhenOthersLostNone) {
  tests::RunBuilder builder;
  const auto script = tests::Script().python(1, 2.0);
  builder.plain(script, 10).times(script, 6).plain(script, 10).times(script, 9);
  builder.process().windows.front().lost = 3;
  const auto process = builder.build().processes.front();
  const auto windows = step_windows(process, training_steps(process), model::RecordedWindow::Mode::times);
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(windows.front().steps(), 9);
}

TEST(Timeline, CoversTheWindowWithoutGaps) {
  tests::RunBuilder builder;
  tests::Script script;
  script.data(10, 0.5).python(12, 1.0).launches(20, 14, "ampere_sgemm_32x32", 0.01);
  script.begin(Phase::backward, 16).launches(20, 16, "ampere_sgemm_32x32", 0.01).end().sync(18);
  builder.train(script);
  const auto process = builder.build().processes.front();
  const auto facts = parse_facts(process);
  const Sites sites(process, facts);
  const auto windows = step_windows(process, training_steps(process), model::RecordedWindow::Mode::causes);
  ASSERT_EQ(windows.size(), 1U);
  auto cursor = windows.front().range.start_ns;
  const auto timelines = host_timelines(process, sites, windows);
  for (const auto& segment : timelines.front()) {
    EXPECT_EQ(segment.range.start_ns, cursor);
    EXPECT_GT(segment.range.end_ns, segment.range.start_ns);
    cursor = segment.range.end_ns;
  }
  EXPECT_EQ(cursor, windows.front().range.end_ns);
}

}  // namespace
}  // namespace fullwatt::explain
