// `fullwatt run` around real trainings on a real GPU: its figures are the GPU's, and the training is left as it was.

#include <algorithm>
#include <cmath>
#include <csignal>

#include "tests/support/watched_test.hpp"

#include "fullwatt/vendor/nvml/nvml.hpp"

namespace fullwatt::tests {
namespace {

class RunOnTheGpu : public WatchedTest {
 protected:
  void SetUp() override {
    WatchedTest::SetUp();
    if (IsSkipped()) return;
    const auto nvml = vendor::nvml::read();
    if (!nvml.works() || nvml.devices.empty()) GTEST_SKIP() << "skipped: no GPU";
  }

  /// A program of tests/workloads, which measures itself: its own figures, and those of fullwatt.
  struct Measured {
    model::Json own;
    model::Json told;
  };
  Measured measure(const std::string& workload, const std::vector<std::string>& arguments, bool under = true) const {
    const auto file = folder_ / "own.json";
    std::vector<std::string> command{python_, std::string(FULLWATT_WORKLOADS) + "/" + workload + ".py", "--json", file};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const auto result = under ? watched(command, {"-q"}) : run(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return {model::Json::parse(read_all(file), nullptr, false), under ? report() : model::Json()};
  }
  std::string python(const std::string& text) const { return folder_.write("train.py", text); }
};

double number(const model::Json& object, const std::string& name) {
  return object.contains(name) && object[name].is_number() ? object[name].get<double>() : std::nan("");
}

double charged(const model::Json& report) {
  double sum = 0;
  for (const auto& cause : report["causes"]) sum += cause["charged_ms"].get<double>();
  return sum;
}

/// The GPU's watts as nvidia-smi writes them down while something runs.
class PowerBySmi {
 public:
  explicit PowerBySmi(std::string file) : file_(std::move(file)) {
    base::ChildOptions options;
    options.argv = {
        "sh", "-c",
        "nvidia-smi --id=0 --query-gpu=power.draw,utilization.gpu --format=csv,noheader,nounits -lms 200 >" + file_ +
            " 2>&1 & echo $!"};
    options.environment = base::current_environment();
    const auto started = base::run_child(options);
    process_ = started ? std::atoi(started->out.c_str()) : 0;
  }
  /// The middle one of those at work.
  double median_watts() {
    if (process_ > 0) ::kill(process_, SIGTERM);
    const auto text = read_all(file_);
    std::vector<double> watts;
    for (const auto& line : base::lines(text)) {
      const auto cells = base::split(line, ',');
      if (cells.size() == 2 && std::atof(std::string(cells[1]).c_str()) > 80)
        watts.push_back(std::atof(std::string(cells[0]).c_str()));
    }
    if (watts.empty()) return std::nan("");
    std::ranges::sort(watts);
    return watts[watts.size() / 2];
  }

 private:
  std::string file_;
  pid_t process_ = 0;
};

TEST_F(RunOnTheGpu, FiguresAreThoseOfTheTrainingsOwnClockItsEventsAndTheDriver) {
  PowerBySmi power(folder_ / "watts");
  const auto [own, told] = measure("healthy_transformer", {"--seconds", "12"});
  const double watts = power.median_watts();
  ASSERT_TRUE(told.is_object());
  const double step = own["step_ms"]["median"].get<double>();
  EXPECT_NEAR(told["step_ms"]["median"].get<double>(), step, 0.05 * step);
  const double samples = number(own, "samples_per_second");
  EXPECT_NEAR(number(told, "samples_per_second"), samples, 0.05 * samples);
  const double busy = number(own, "busy_ms");
  EXPECT_NEAR(number(told, "gpu_busy_ms"), busy, 0.1 * busy);
  EXPECT_NEAR(charged(told), told["step_ms"]["mean"].get<double>(), 1e-6);
  const auto at = std::ranges::find_if(told["resources"], [](const auto& row) { return row["id"] == "power"; });
  ASSERT_NE(at, told["resources"].end());
  EXPECT_NEAR(number(*at, "used"), watts, 0.1 * watts);
}

TEST_F(RunOnTheGpu, LossesAreTheSameToTheBit) {
  const std::vector<std::string> arguments{"--steps", "150", "--seconds", "1000"};
  const auto alone = measure("healthy_gan", arguments, false).own;
  const auto [under, told] = measure("healthy_gan", arguments);
  ASSERT_TRUE(alone["loss"].is_string());
  EXPECT_EQ(alone["loss"], under["loss"]);
  EXPECT_EQ(told["steps"], 150) << "those that the program measures by CUDA events are not counted";
  EXPECT_EQ(told["no_gpu_records"], "") << "windows were open meanwhile";
}

/// Events and pinned memory of ours are freed in the process that made them alone.
TEST_F(RunOnTheGpu, WorkersThatAreStartedInEveryEpochLive) {
  const auto program = python(R"(import time, torch
data = torch.utils.data.TensorDataset(torch.randn(640, 64))
loader = torch.utils.data.DataLoader(data, batch_size=64, num_workers=2, pin_memory=True)
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(model.parameters())
end, epochs = time.time() + 8, 0
while time.time() < end:
    for (x,) in loader:
        loss = model(x.cuda(non_blocking=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    epochs += 1
print("epochs", epochs))");
  const auto result = watched({python_, program}, {"-q"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(std::atoi(printed(result, "epochs").c_str()), 3) << result.err;
}

TEST_F(RunOnTheGpu, AGraphThatIsCapturedAndReplayedStaysWhole) {
  const auto program = python(R"(import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=True)
x = torch.randn(4096, 1024, device="cuda")
def forward_and_backward():
    optimizer.zero_grad(set_to_none=False)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        forward_and_backward()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = forward_and_backward()
for _ in range(2000):
    graph.replay()
for _ in range(200):
    forward_and_backward()
    loss_now = loss.item()
print("loss", loss_now.hex(), loss.item().hex())
)");
  const auto alone = run({python_, program});
  const auto under = watched({python_, program}, {"-q"});
  EXPECT_EQ(under.exit_code, 0) << under.err;
  ASSERT_FALSE(printed(alone, "loss").empty()) << alone.err;
  EXPECT_EQ(printed(alone, "loss"), printed(under, "loss"));
}

TEST_F(RunOnTheGpu, AScriptsOwnProfilerStillGetsItsEvents) {
  const auto program = python(R"(import torch
model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(256, 512, device="cuda")
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
train(60)
with torch.profiler.profile() as profiler:
    train(60)
    torch.cuda.synchronize()
kernels = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA and "gemm" in e.name.lower()]
print("kernels", len(kernels))
train(200)
)");
  const auto alone = run({python_, program});
  const auto under = watched({python_, program}, {"-q"});
  EXPECT_EQ(under.exit_code, 0) << under.err;
  ASSERT_NE(printed(alone, "kernels"), "0") << alone.err;
  EXPECT_EQ(printed(alone, "kernels"), printed(under, "kernels"));
}

TEST_F(RunOnTheGpu, AProgramWithoutPythonIsRecordedByInjection) {
  const auto result = watched({FULLWATT_NATIVE_PROGRAM, "9"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto told = report();
  EXPECT_TRUE(told["has_gpu"].get<bool>()) << told["remarks"].dump();
  const auto ours = [](const auto& group) { return base::contains(group.dump(), "fullwatt_check"); };
  EXPECT_TRUE(std::ranges::any_of(told["kernels"], ours)) << told["kernels"].dump(1);
}

}  // namespace
}  // namespace fullwatt::tests
