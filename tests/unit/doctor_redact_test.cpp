#include <array>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fullwatt/doctor/redact.hpp"

namespace fullwatt::doctor {
namespace {

RawMachine adas_machine() {
  RawMachine raw;
  raw.environment = {{"HOME", "/home/ada"}};
  raw.nvml.devices.resize(2);
  raw.nvml.devices[0].uuid = "GPU-11111111-2222-3333-4444-555566667777";
  raw.nvml.devices[1].uuid = "GPU-99999999-2222-3333-4444-555566667777";
  raw.nvml.devices[1].mig_slices = {{"MIG-aaaaaaaa-2222-3333-4444-555566667777", "MIG 1g.18gb", 1, 1}};
  raw.cuda.devices.resize(1);
  raw.cuda.devices[0].uuid = "GPU-11111111-2222-3333-4444-555566667777";
  return raw;
}

std::string redacted(const std::string& text) {
  return Redactor(adas_machine())(text);
}

TEST(RedactTest, HomeFoldersLoseTheirOwner) {
  EXPECT_EQ(redacted("/home/ada/venv/bin/python"), "/home/user/venv/bin/python");
  EXPECT_EQ(redacted("HOME=/home/ada"), "HOME=/home/user");
}

TEST(RedactTest, TheUserIsReplacedAsAWordAndNotInsideOthers) {
  EXPECT_EQ(redacted("owned by ada."), "owned by user.");
  EXPECT_EQ(redacted("adapter, Canada, ada_lovelace"), "adapter, Canada, ada_lovelace");
  EXPECT_EQ(redacted("/home/ada2/x"), "/home/ada2/x");
}

TEST(RedactTest, TheHostIsReplaced) {
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  const std::string host = name.data();
  if (host.size() < 2 || host == "localhost") GTEST_SKIP() << "this machine has no name of its own";
  EXPECT_EQ(redacted("on [" + host + "] now"), "on [host] now");
}

TEST(RedactTest, TheSameUuidGetsTheSameReplacementEverywhere) {
  const Redactor redact(adas_machine());
  const auto first = redact("GPU-11111111-2222-3333-4444-555566667777");
  EXPECT_EQ(redact("x=GPU-11111111-2222-3333-4444-555566667777;"), "x=" + first + ";");
  EXPECT_NE(redact("GPU-99999999-2222-3333-4444-555566667777"), first);
  EXPECT_TRUE(first.starts_with("GPU-"));
  EXPECT_TRUE(redact("MIG-aaaaaaaa-2222-3333-4444-555566667777").starts_with("MIG-"));
  EXPECT_EQ(redact("MIG-aaaaaaaa-2222-3333-4444-555566667777").find("aaaaaaaa"), std::string::npos);
}

TEST(RedactTest, UuidsThatOnlyFilesTellAreReplaced) {
  RawMachine raw;
  raw.files["/proc/driver/nvidia/gpus/0000:01:00.0/information"].text =
      "GPU UUID: \t GPU-12345678-2222-3333-4444-555566667777\n";
  EXPECT_EQ(Redactor(raw)("CUDA_VISIBLE_DEVICES=GPU-12345678-2222-3333-4444-555566667777").find("12345678"),
            std::string::npos);
}

TEST(RedactTest, FilesAreRedactedBeforeTheyBecomeHex) {
  auto raw = adas_machine();
  raw.files["/proc/42/cmdline"].text = std::string("/home/ada/venv/bin/python\0--token=abc\0", 39);
  const auto clean = Redactor(raw)(raw);
  EXPECT_EQ(clean.files.at("/proc/42/cmdline").text.value(),
            std::string("/home/user/venv/bin/python\0--token=<removed>\0", 46));
}

TEST(RedactTest, NetworkAddressesAreReplaced) {
  EXPECT_EQ(redacted("connect to 10.1.22.213 failed"), "connect to 192.0.2.1 failed");
  EXPECT_EQ(redacted("MASTER_ADDR=172.17.0.1"), "MASTER_ADDR=192.0.2.1");
  EXPECT_EQ(redacted("http://203.0.113.9:29500/x"), "http://192.0.2.1:29500/x");
}

TEST(RedactTest, TheMachinesOwnAddressTellsNothing) {
  EXPECT_EQ(redacted("127.0.0.1 and 0.0.0.0"), "127.0.0.1 and 0.0.0.0");
}

TEST(RedactTest, VersionsAreNotAddresses) {
  for (const auto* text :
       {"580.95.05", "driver 535.161.07.01", "libcudnn.so.9.10.2.21", "nvidia_cudnn_cu12-9.10.2.21.dist-info",
        "9.10.2.21-1", "6.8.0-85-generic", "95.07.2d.00.3e", "1.2.3.4.5", "v1.2.3.4x", "0000:01:00.0"}) {
    EXPECT_EQ(redacted(text), text);
  }
}

TEST(RedactTest, ValuesOfSecretsAreTakenOut) {
  EXPECT_EQ(redacted("WANDB_API_KEY=abc123 next"), "WANDB_API_KEY=<removed> next");
  EXPECT_EQ(redacted("--hf-token=hf_abc,x"), "--hf-token=<removed>,x");
  EXPECT_EQ(redacted("Password: hunter2\nnext"), "Password: <removed>\nnext");
  EXPECT_EQ(redacted("Authorization: Bearer abc.def\n"), "Authorization: Bearer <removed>\n");
  EXPECT_EQ(redacted("secret='abc'"), "secret='<removed>'");
  EXPECT_EQ(redacted("{\"hf_token\": \"abc\", \"x\": 1}"), "{\"hf_token\": \"<removed>\", \"x\": 1}");
  EXPECT_EQ(redacted("HF_TOKEN: \"abc def\"\n"), "HF_TOKEN: \"<removed>\"\n");
  EXPECT_EQ(redacted("line \\\"token\\\": \\\"abc\\\" end").find("abc"), std::string::npos);
  EXPECT_EQ(redacted(std::string("API_KEY=abc\0NEXT=1", 18)), std::string("API_KEY=<removed>\0NEXT=1", 24));
}

TEST(RedactTest, OrdinaryTextIsLeftAlone) {
  for (const auto* text :
       {"", "NVRM: Xid (PCI:0000:01:00): 79, pid=1", "a = b: c", "tokenizer: fast", "key: value", "GPU-less"}) {
    EXPECT_EQ(redacted(text), text);
  }
}

TEST(RedactTest, AMachineWithoutAHomeIsRedactedToo) {
  const RawMachine raw;
  EXPECT_EQ(Redactor(raw)("to 10.1.2.3"), "to 192.0.2.1");
  RawMachine root;
  root.environment = {{"HOME", "/root"}};
  EXPECT_EQ(Redactor(root)("the root of /root"), "the root of /root");
}

}  // namespace
}  // namespace fullwatt::doctor
