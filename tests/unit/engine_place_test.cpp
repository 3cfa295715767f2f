#include <map>

#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/place.hpp"

namespace fullwatt::engine {
namespace {

using Variables = std::map<std::string, std::string>;

base::Result<Place> place_by(const Variables& variables) {
  return place_here([&](const char* name) {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  });
}

std::string refusal(const Variables& variables) {
  const auto place = place_by(variables);
  return place ? "" : place.error().message + " | " + place.error().remedy;
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29400"}};
const Variables kStep{{"SLURM_PROCID", "5"},
                      {"SLURM_STEP_NUM_TASKS", "8"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                      {"SLURM_JOB_ID", "4711"},
                      {"SLURM_STEP_NODELIST", "gpu[003-004]"},
                      {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(EnginePlaceTest, WithoutALauncherItIsOneProcess) {
  for (const Variables& variables : {Variables{}, Variables{{"RANK", ""}}, Variables{{"MASTER_ADDR", "node0"}}}) {
    const auto place = place_by(variables);
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(place->rank, 0);
    EXPECT_EQ(place->size, 1);
    EXPECT_TRUE(place->master.empty());
  }
}

TEST(EnginePlaceTest, TorchrunSaysEverything) {
  const auto place = place_by(kTorchrun);
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->size, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->master, "node0");
  EXPECT_EQ(place->port, 29400);
  EXPECT_FALSE(place->is_served);
}

TEST(EnginePlaceTest, TorchrunMayKeepTheStoreItselfAndStartAgain) {
  const auto place =
      place_by(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  ASSERT_TRUE(place);
  EXPECT_TRUE(place->is_served);
  EXPECT_EQ(place->attempt, 2);
}

TEST(EnginePlaceTest, ProcessesOfOneMachineMeetThere) {
  const auto all_here = with(without(without(kTorchrun, "MASTER_ADDR"), "MASTER_PORT"), {{"LOCAL_WORLD_SIZE", "8"}});
  const auto place = place_by(all_here);
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->master, "127.0.0.1");
  EXPECT_EQ(place->port, 29500);
}

TEST(EnginePlaceTest, SlurmsTasksMeetOnTheFirstNodeOfTheStep) {
  const auto place = place_by(kStep);
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->size, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->master, "gpu003");
  EXPECT_EQ(place_by(without(kStep, "SLURM_STEP_NODELIST"))->master, "10.0.0.9");
  EXPECT_EQ(place_by(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "8"}}))->master, "127.0.0.1");
  EXPECT_EQ(place_by(with(kStep, {{"MASTER_ADDR", "head"}}))->master, "head");
}

TEST(EnginePlaceTest, EveryStepOfAJobHasAPortOfItsOwn) {
  const auto port = [](const std::string& job, const std::string& step) {
    return place_by(with(kStep, {{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}}))->port;
  };
  EXPECT_NE(port("4711", "0"), port("4711", "1"));
  EXPECT_NE(port("4711", "1"), port("4712", "0"));
  for (const auto* job : {"0", "4711", "99999999"}) {
    EXPECT_GE(port(job, "0"), 15000);
    EXPECT_LT(port(job, "0"), 29000);
  }
  EXPECT_EQ(place_by(with(kStep, {{"MASTER_PORT", "1234"}}))->port, 1234);
}

TEST(EnginePlaceTest, ListsOfNodesAreReadAsSlurmWritesThem) {
  for (const auto& [nodes, first] : Variables{{"alpha", "alpha"},
                                              {"alpha,beta", "alpha"},
                                              {"gpu[003-007,9],login", "gpu003"},
                                              {"gpu[3,9]", "gpu3"},
                                              {"rack[0-1]n[04-05]", "rack0n04"},
                                              {"gpu[3-4].cluster", "gpu3.cluster"}})
    EXPECT_EQ(place_by(with(kStep, {{"SLURM_STEP_NODELIST", nodes}}))->master, first) << nodes;
  EXPECT_EQ(place_by(with(kStep, {{"SLURM_STEP_NODELIST", "gpu[3"}}))->master, "10.0.0.9");
}

TEST(EnginePlaceTest, HowManyAreOnAMachineIsAtLeastWhatThisOneSees) {
  EXPECT_EQ(place_by(without(kTorchrun, "LOCAL_WORLD_SIZE"))->local_size, 2);
  EXPECT_EQ(place_by(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "3(x2),2"}}))->local_size, 3);
}

TEST(EnginePlaceTest, ABatchScriptIsOneProcess) {
  const auto place = place_by({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "4711"}});
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->size, 1);
}

TEST(EnginePlaceTest, MpirunNeedsAnAddressBetweenMachines) {
  const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const Variables hydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  for (const auto& variables : {open_mpi, hydra}) {
    EXPECT_TRUE(base::contains(refusal(variables), "Set MASTER_ADDR, the same for all")) << refusal(variables);
    const auto place = place_by(with(variables, {{"MASTER_ADDR", "node0"}}));
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(place->rank, 1);
    EXPECT_EQ(place->size, 4);
    EXPECT_EQ(place->local_rank, 1);
    EXPECT_EQ(place->port, 29500);
  }
  EXPECT_EQ(place_by(with(hydra, {{"MPI_LOCALNRANKS", "4"}}))->master, "127.0.0.1");
  EXPECT_EQ(place_by(with(hydra, {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}))->size, 1);
}

TEST(EnginePlaceTest, OfSeveralLaunchersTheInnermostCounts) {
  EXPECT_EQ(place_by(with(kStep, kTorchrun))->port, 29400);
  const auto by_srun_with_pmi = place_by(with(kStep, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}}));
  ASSERT_TRUE(by_srun_with_pmi) << by_srun_with_pmi.error().message;
  EXPECT_EQ(by_srun_with_pmi->master, "gpu003");
  const auto by_mpirun_in_a_job =
      place_by(with(kStep, {{"PMI_RANK", "7"}, {"PMI_SIZE", "16"}, {"MPI_LOCALRANKID", "3"}}));
  ASSERT_TRUE(by_mpirun_in_a_job) << by_mpirun_in_a_job.error().message;
  EXPECT_EQ(by_mpirun_in_a_job->rank, 7);
  EXPECT_EQ(by_mpirun_in_a_job->master, "gpu003");
}

TEST(EnginePlaceTest, HalfASetOfVariablesIsRefused) {
  EXPECT_EQ(refusal(without(kTorchrun, "WORLD_SIZE")),
            "WORLD_SIZE is not set, though other variables of torchrun are | torchrun sets RANK, WORLD_SIZE and "
            "LOCAL_RANK: set all, or none for one process alone.");
  EXPECT_TRUE(base::contains(refusal(without(kTorchrun, "RANK")), "RANK is not set"));
  EXPECT_TRUE(base::contains(refusal(without(kTorchrun, "LOCAL_RANK")), "LOCAL_RANK is not set"));
  EXPECT_TRUE(base::contains(refusal(without(kTorchrun, "MASTER_ADDR")), "MASTER_ADDR is not set"));
  EXPECT_TRUE(base::contains(refusal(without(kStep, "SLURM_LOCALID")), "SLURM_LOCALID is not set"));
  EXPECT_TRUE(base::contains(refusal({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), "MPI_LOCALRANKID is not set"));
}

TEST(EnginePlaceTest, WrongValuesAreRefused) {
  EXPECT_TRUE(base::contains(refusal(with(kTorchrun, {{"RANK", "8"}})), "RANK must be a number from 0 to 7, not '8'"));
  EXPECT_TRUE(base::contains(refusal(with(kTorchrun, {{"RANK", "-1"}})), "not '-1'"));
  EXPECT_TRUE(base::contains(refusal(with(kTorchrun, {{"WORLD_SIZE", "zwei"}})), "not 'zwei'"));
  EXPECT_TRUE(base::contains(refusal(with(kTorchrun, {{"WORLD_SIZE", "0"}})), "from 1 to"));
  EXPECT_TRUE(base::contains(refusal(with(kTorchrun, {{"LOCAL_RANK", "9"}})), "LOCAL_RANK must be"));
  EXPECT_TRUE(base::contains(refusal(with(kTorchrun, {{"MASTER_PORT", "65536"}})), "MASTER_PORT must be"));
}

}  // namespace
}  // namespace fullwatt::engine
