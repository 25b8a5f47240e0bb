"""What Slurm prints about partitions, nodes and accounts is read right.

The lines are of Slurm 17.11 to 26.05; names are replaced, and fields that are not read are left out.
"""

import os
import re

import pytest

from virtqual.errors import UsageError
from virtqual.site import limits, partitions, slurm
from virtqual.site.limits import Demand
from virtqual.site.options import parse_options
from virtqual.site.partitions import NodeSize
from virtqual.site.slurm import SilentError

UP = "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED"
RESERVED = "CoreSpecCount=2 CPUSpecList=62-63,126-127 MemSpecLimit=4096"


@pytest.fixture
def prints(monkeypatch):
    """Return how to have Slurm's commands print texts, by patterns of command lines; all others fail."""
    answers = {r"scontrol show hostnames (\S+)": lambda names: "\n".join(expand(names))}
    monkeypatch.setattr(limits, "_HAS_ANSWERED", ["sacctmgr"])

    def ask(command, seconds=0):
        line = " ".join(command)
        for pattern, text in reversed(answers.items()):
            if match := re.fullmatch(pattern, line):
                return text(*match.groups()) if callable(text) else text
        raise SilentError(f"{line} is not expected")

    monkeypatch.setattr(slurm, "ask", ask)
    return answers.update


def expand(names):
    """Return the nodes of ``cn[1-3],vm1``."""
    nodes = []
    for prefix, first, last in re.findall(r"([a-z]+)\[?(\d+)(?:-(\d+)\])?", names):
        nodes += [f"{prefix}{number}" for number in range(int(first), int(last or first) + 1)]
    return nodes


def node(name, cpus="CPUEfctv=64 CPUTot=64", memory="RealMemory=256000", rest="", sockets=2, cores=32):
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket={cores}  CPUAlloc=0 {cpus} CPULoad=8.81 "
        f"AvailableFeatures=(null) NodeHostName={name} OS=Linux 5.14.0 #1 SMP PREEMPT_DYNAMIC @0  {memory} "
        f"AllocMem=0 Sockets={sockets} Boards=1 {rest}"
    )


def show(prints, nodes, settings=UP, name="p"):
    prints(
        {
            rf"scontrol --all -o show partition {name}": f"PartitionName={name} Nodes=list {settings}\n",
            r"scontrol --all -o show node .*": "\n".join(nodes),
        }
    )


@pytest.mark.parametrize(
    ("line", "settings", "size"),
    [
        # 24.11: two cores of two threads each, and memory, are kept for the system.
        (node("c1", "CPUEfctv=124 CPUTot=128", rest=RESERVED), UP, (124, 62, 251904)),
        # 20.11 and older have no CPUEfctv, and CfgTRES has all CPUs.
        (node("c1", "CPUTot=128", rest=f"{RESERVED} CfgTRES=cpu=128"), UP, (124, 62, 251904)),
        # 17.11
        (
            node("g1", "CPUErr=0 CPUTot=36", "RealMemory=772437", "CoreSpecCount=2 CPUSpecList=0-1", 2, 18),
            UP,
            (34, 34, 772437),
        ),
        # 23.11: reserved by number of cores alone.
        (node("c2", "CPUTot=128", rest="CoreSpecCount=1"), UP, (126, 63, 256000)),
        (
            node("g2", "CPUEfctv=94 CPUTot=96", rest="CoreSpecCount=2", sockets=4, cores=24),
            UP,
            (94, 94, 256000),
        ),
        # Two sockets of 56 cores with two threads each: 16 cores are kept.
        (
            node(
                "b1",
                "CPUEfctv=192 CPUTot=224",
                "RealMemory=2060000",
                "CoreSpecCount=16 CPUSpecList=96-111,208-223 MemSpecLimit=65536",
                2,
                56,
            ),
            UP,
            (192, 96, 1994464),
        ),
        # 19.05 in a cloud: memory alone is kept.
        (node("hb", "CPUTot=60", "RealMemory=229376", "MemSpecLimit=5120", 15, 4), UP, (60, 60, 224256)),
        # CPUs=1 for a node of four cores.
        (node("pi", "CPUEfctv=1 CPUTot=1", "RealMemory=4096", "", 1, 4), UP, (1, 1, 4096)),
        # Memory that is not configured.
        (node("p1", "CPUEfctv=8 CPUTot=8", "RealMemory=1", sockets=8, cores=1), UP, (8, 8, None)),
        (node("n1"), "MaxCPUsPerNode=16 MaxMemPerNode=32000", (16, 16, 32000)),
        (node("n1"), "MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=20 MaxMemPerCPU=1000", (40, 40, 40000)),
        # Free text looks like fields.
        (
            node("n1", rest="Reason=kernel=5.14 RealMemory=9 [root@1795951128] Comment=CPUTot=3"),
            UP,
            (64, 64, 256000),
        ),
    ],
)
def test_what_jobs_get_of_a_node(prints, line, settings, size):
    show(prints, [line], settings)
    (read,) = partitions.read_partition("p").sizes.values()
    assert read == NodeSize(*size)


def test_sinfo_is_asked_where_scontrol_does_not_show_nodes(prints):
    """It shortens 1,024 CPUs, and a site may print notices."""
    prints(
        {
            "scontrol --all -o show partition smp": "PartitionName=smp MaxTime=1-00:00:00 Nodes=big[1-2]",
            r"sinfo .*--Node -p smp .*": "sinfo: maintenance | see | page | on | Tuesday\n"
            "big1|1K|8|64|4000000\nbig2|1030|8|64|4000000\n",
        }
    )
    sizes = partitions.read_partition("smp").sizes
    assert sizes == {"big1": NodeSize(1024, 512, 4000000), "big2": NodeSize(1030, 512, 4000000)}


def test_what_scontrol_does_not_say_of_a_node_sinfo_does(prints):
    prints(
        {
            "scontrol --all -o show partition p": "PartitionName=p Nodes=n1",
            "scontrol --all -o show node n1": "NodeName=n1 CPUAlloc=0 CPUEfctv=63 CPUTot=64 RealMemory=8000",
            r"sinfo .*--Node -p p .*": "n1|64|2|32|8000",
        }
    )
    assert partitions.read_partition("p").sizes == {"n1": NodeSize(63, 63, 8000)}


def test_a_node_that_scontrol_hides_hides_no_other(prints):
    """20.11 and 22.05 fail if one of the nodes is a cloud's and switched off."""
    prints(
        {
            "scontrol --all -o show partition p": "PartitionName=p Nodes=n[1-2],cloud1",
            "scontrol --all -o show node": "\n".join(map(node, ("n1", "n2", "x1"))),
        }
    )
    assert sorted(partitions.read_partition("p").sizes) == ["n1", "n2"]
    prints({"scontrol --all -o show node": node("x1"), r"sinfo .*--Node.*": "", r"sinfo .*%R": "p"})
    with pytest.raises(UsageError, match="Slurm shows no node of partition p"):
        partitions.read_partition("p")


def test_why_jobs_get_less_is_said(prints):
    show(prints, [node("c1", "CPUEfctv=124 CPUTot=128", rest=RESERVED)], "MaxMemPerNode=200000")
    partition = partitions.read_partition("p")
    assert partition.explain_cpus("c1") == (
        " (jobs get 124 of its 128: CoreSpecCount=2, CPUSpecList=62-63,126-127)"
    )
    assert "MemSpecLimit=4096, MaxMemPerNode=200000 of partition p" in partition.explain_memory("c1")


@pytest.mark.parametrize(
    ("memory", "kinds"),
    [
        ([257003 + 3 * k for k in range(8)], [(257003, 8)]),
        # A node that lacks a DIMM of 16, and one that was forgotten.
        ([256000] * 7 + [240000], [(256000, 7), (240000, 1)]),
        # The most nodes are within the tolerance of the second, not of the first.
        ([250000, 256000, 257000, 257600, 257700], [(256000, 4), (250000, 1)]),
        ([192000] * 2 + [384000] * 3, [(384000, 3), (192000, 2)]),
    ],
)
def test_nodes_whose_memory_differs_little_are_of_one_kind(prints, memory, kinds):
    show(prints, [node(f"n{k}", memory=f"RealMemory={mib}") for k, mib in enumerate(memory)])
    partition = partitions.read_partition("p")
    assert [(kind.size.memory_mib, len(kind.nodes)) for kind in partition.kinds] == kinds
    assert len(partition.common_nodes) + len(partition.other_nodes) == len(memory)


def test_kinds_of_nodes_are_named_and_the_probe_is_on_the_most_common_one(prints):
    small = "CPUEfctv=8 CPUTot=8"
    show(
        prints,
        [*(node(f"n{k}", small, sockets=1, cores=8) for k in (1, 2)), *(node(f"n{k}") for k in range(3, 8))],
    )
    partition = partitions.read_partition("p")
    assert partition.describe_kinds() == (
        "partition p has 2 kinds of nodes: 5 nodes of 64 CPUs and 256000 MiB (n[3-7]); "
        "2 nodes of 8 CPUs and 256000 MiB (n[1-2])"
    )
    assert partition.choose_probed(["--partition=p", "-C", "x"])[-2:] == [
        "--constraint=x",
        "--exclude=n[1-2]",
    ]
    # srun refuses a list of more nodes than the one of the probe.
    options = ["-p", "p", "-w", "n[3-5]"]
    listed = partition.select(parse_options(options))
    assert listed.choose_probed(options) == ["--partition=p", "--exclude=n[1-2],n[6-7]"]


def describe_features(prints, features):
    """Return what is said of nodes of one size with these features."""
    show(prints, [node(name, rest=f"ActiveFeatures={value}") for name, value in features.items()])
    return partitions.read_partition("p").describe_features()


@pytest.mark.parametrize(
    ("features", "says"),
    [
        # A partition with bare-metal nodes and VMs in racks, of which each rack is a feature.
        (
            {f"n{k}": f"cpu,milan,rack{k // 2}" for k in range(10, 26)}
            | {"v1": "vm,milan", "v2": "vm,milan"},
            "16 nodes with cpu (n[10-25]); 2 nodes with vm (v[1-2]). If these are not the same hardware, -C "
            "cpu selects the first of these groups",
        ),
        (
            {"n1": "(null)", "n2": "(null)", "n3": "scratch"},
            "2 nodes with none of these (n[1-2]); 1 node with scratch (n3). If these are not the same "
            "hardware, --exclude leaves nodes out",
        ),
        (
            {f"n{k}": f"{kind},x" for k, kind in enumerate(["a", "b", "c", "d", "e", "f"] * 2)},
            "2 nodes with a (n0, n6); 2 nodes with b (n1, n7); 2 nodes with c (n2, n8); 2 nodes with d (n3, "
            "n9); 2 more groups. If these are not the same hardware, -C a selects the first of these groups",
        ),
        # Racks, one feature a node, and one set for all.
        ({f"n{k}": f"cpu,sw-{k // 2:02}" for k in range(10, 26)}, ""),
        ({f"n{k}": f"cpu,{name}" for k, name in enumerate(["ada", "bob", "cleo", "dora", "eve"])}, ""),
        ({"n1": "cpu,hdr", "n2": "hdr,cpu"}, ""),
    ],
)
def test_features_by_which_nodes_of_one_size_differ(prints, features, says):
    begin = "nodes of one size in partition p differ in features: "
    assert describe_features(prints, features) == (f"{begin}{says}" if says else "")


@pytest.mark.parametrize(
    ("constraint", "selected"),
    [
        ("bare", "n1 n2 n3"),
        ("bare&hdr", "n1 n2"),
        ("bare,hdr", "n1 n2"),
        ("hdr|vm", "n1 n2 v1"),
        ("(bare|vm)&!hdr", "n3 v1"),
        ("location=local", "n3"),
        ("gpu", ""),
        # Slurm alone knows these.
        *((unsure, "n1 n2 n3 v1") for unsure in ("[bare|vm]", "bare*2&vm*1", "bare|vm&hdr", "(bare")),
    ],
)
def test_constraints_select_nodes_by_their_active_features(prints, constraint, selected):
    features = {"n1": "bare,hdr", "n2": "bare,hdr", "n3": "location=local,bare", "v1": "vm"}
    show(prints, [node(name, rest=f"ActiveFeatures={value}") for name, value in features.items()])
    options = {"--constraint": constraint}
    assert sorted(partitions.filter_nodes(options, features)) == selected.split()
    assert bool(limits.explain_constraint(options)) is (
        constraint in ("[bare|vm]", "bare*2&vm*1", "bare|vm&hdr", "(bare")
    )
    if not selected:
        (sentence,) = limits.find_wrong_selection(partitions.read_partition("p"), options)
        assert "selects none of the nodes of partition p: their features are bare, hdr" in sentence


def test_a_reservation_selects_its_nodes(prints):
    line = (
        "ReservationName=course StartTime=1795953749 EndTime=1795989749 Nodes=n[2-3] NodeCnt=2 "
        "Features=(null) PartitionName=(null) Flags=SPEC_NODES Users=user Accounts=(null) State=ACTIVE"
    )
    prints({"scontrol -o show reservation course": f"{line}\n"})
    options = {"--reservation": "course", "--exclude": "n3"}
    assert partitions.filter_nodes(options, ["n1", "n2", "n3", "n4"]) == {"n2"}
    show(prints, [node("n1")])
    (sentence,) = limits.find_wrong_selection(partitions.read_partition("p"), {"--reservation": "gone"})
    assert sentence.startswith("states --reservation=gone: ")


def test_several_partitions_are_one_and_the_default_one_has_no_name(prints):
    for name in ("a", "b"):
        lines = [node(f"{name}1"), node("n1")]
        prints(
            {
                f"scontrol --all -o show partition {name}": f"PartitionName={name} Nodes={name}1,n1",
                rf"scontrol --all -o show node {name}1,n1": "\n".join(lines),
            }
        )
    prints({"scontrol --all -o show partition": "PartitionName=a Default=NO\nPartitionName=b Default=YES"})
    assert sorted(partitions.read_partition("a,b").sizes) == ["a1", "b1", "n1"]
    assert partitions.read_partition("").name == "b"
    prints({"scontrol --all -o show partition": "PartitionName=a Default=NO", r"sinfo .*": "a\nb"})
    with pytest.raises(UsageError, match="no default partition"):
        partitions.read_partition("")
    with pytest.raises(UsageError, match="Slurm has no partition 'c'"):
        partitions.read_partition("a,c")


@pytest.mark.parametrize(
    ("settings", "options", "says"),
    [
        ("AllowAccounts=hpcops,staff", "-A HPCops", ""),
        (
            "AllowAccounts=hpcops,staff",
            "-A guests",
            "states --account=guests, but partition p takes hpcops or staff",
        ),
        ("DenyAccounts=guests,hpcops", "-A hpcops", "takes all but guests or hpcops (DenyAccounts)"),
        ("DenyQos=low", "--qos=low", "takes all but low (DenyQos)"),
        ("AllowQos=high", "--qos=low", "takes high alone"),
        ("State=INACTIVE", "", "partition p is INACTIVE: it takes no jobs and begins none"),
        ("State=DRAIN", "", "partition p is DRAIN: it takes no new jobs"),
        ("State=DOWN", "", "partition p is DOWN: it takes jobs and begins none"),
        ("ReqResv=YES", "", "states no --reservation, but partition p takes jobs in a reservation alone"),
        ("ReqResv=YES", "--reservation=x", ""),
        (
            "MaxTime=08:00:00",
            "--time=9:00:00",
            "states --time=9:00:00, but MaxTime of partition p is 8:00:00",
        ),
        ("OverSubscribe=FORCE:4", "", "OverSubscribe=FORCE:4: jobs share nodes, and --exclusive is ignored"),
        ("OverSubscribe=EXCLUSIVE", "", ""),
    ],
)
def test_settings_by_which_a_partition_takes_no_job(prints, settings, options, says):
    show(prints, [node("n1")], settings)
    prints({"scontrol show config": "AccountingStorageEnforce = none"})
    said = "; ".join(limits.find_obstacles(partitions.read_partition("p"), parse_options(options.split())))
    assert says in said
    assert bool(says) is bool(said)


def test_groups_and_root(prints, monkeypatch):
    prints({"scontrol show config": ""})
    show(prints, [node("n1")], "AllowGroups=wheel-of-nobody RootOnly=YES")
    partition = partitions.read_partition("p")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    said = list(limits.find_obstacles(partition, {}))
    assert [bool(re.search(words, " ".join(said))) for words in ("group wheel-of-nobody", "root alone")] == [
        True
    ] * 2
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert not list(limits.find_obstacles(partition, {}))


ENFORCED = (
    "AccountingStorageEnforce = associations,limits,qos,safe\nSchedulerParameters     = \nClusterName = alpha"
)


@pytest.fixture
def accounts(prints):
    """A user with two accounts on one cluster; accounts below `science` may use what it may."""
    show(prints, [node(f"n{k}") for k in range(1, 9)], f"QoS=part-virt {UP} AllowAccounts=science")
    prints(
        {
            "scontrol show config": ENFORCED,
            r"sacctmgr --noheader --parsable2 show associations user=\S+ cluster=alpha .*": (
                "physics|normal,long|normal|cpu=256|2-00:00:00|||\nstudents|normal|normal||||1|\n"
            ),
            r"sacctmgr .* show associations account=physics user= .*": "physics|science\n",
            r"sacctmgr .* show associations account=s\S+ user= .*": "science|root\n",
            r"sacctmgr .* show associations account=chemistry user= .*": "",
            r"sacctmgr .* show user \S+ .*": "physics\n",
            r"sacctmgr .* show qos part-virt .*": "node=4|04:00:00||node=2||1|\n",
            r"sacctmgr .* show qos normal .*": "||node=6|||5|\n",
            r"sacctmgr .* show qos long .*": "|1-00:00:00|||||\n",
        }
    )
    return partitions.read_partition("p")


def test_accounts_below_an_allowed_one_are_allowed(accounts):
    assert list(limits.find_obstacles(accounts, {"--account": "Physics"})) == []
    # The default account is allowed, too.
    assert list(limits.find_obstacles(accounts, {})) == []
    said = list(limits.find_obstacles(accounts, {"--account": "chemistry"}))
    assert said[-1] == "states --account=chemistry, but your accounts are physics, students"
    (sentence,) = limits.find_obstacles(accounts, {"--account": "physics", "--qos": "huge"})
    assert sentence == "states --qos=huge, but your QOS are long, normal"


def test_limits_of_account_and_qos(accounts):
    demand = Demand(parse_options(["-A", "physics", "--time=8:00:00"]), nodes=8, cpus=64, jobs=2)
    said = [f"{key}: {sentence}" for key, sentence in limits.find_exceeded_limits(accounts, demand)]
    assert said == [
        "nodes: jobs ask for 512 CPUs, but MaxTRES of account physics is cpu=256",
        "nodes: jobs ask for 8 nodes, but GrpTRES of QOS normal is node=6",
        "time: states --time=8:00:00, but MaxWall of QOS part-virt is 04:00:00",
        "nodes: jobs ask for 8 nodes, but MaxTRES of QOS part-virt is node=4",
        "jobs: MaxJobsPU of QOS part-virt is 1, but a session's job counts as 2 (one a side)",
    ]
    assert limits.find_max_nodes(accounts, {}, 64) == (4, "MaxTRES of QOS part-virt")
    assert limits.find_max_minutes(accounts, {}) == (240, "MaxWall of QOS part-virt")


def test_a_database_that_does_not_answer_is_asked_once(prints, monkeypatch):
    show(prints, [node("n1")])
    asked = []
    prints({"scontrol show config": ENFORCED, r"sacctmgr .*": lambda: asked.append(1) or silent()})

    def silent():
        raise SilentError("sacctmgr: no end after 10 s")

    for _ in range(2):
        assert list(limits.find_obstacles(partitions.read_partition("p"), {"--account": "x"})) == []
    assert len(asked) == 1


def test_limits_of_numbers_of_nodes(prints):
    show(prints, [node(f"n{k}") for k in range(1, 9)], "MaxNodes=2 MinNodes=1")
    prints({"scontrol show config": ""})
    ((key, sentence),) = limits.find_exceeded_limits(partitions.read_partition("p"), Demand({}, nodes=8))
    assert (key, sentence) == ("nodes", "states 8, but MaxNodes of partition p is 2")
    show(prints, [node(f"n{k}") for k in range(1, 9)], "MaxNodes=UNLIMITED MinNodes=4")
    ((_, sentence),) = limits.find_exceeded_limits(partitions.read_partition("p"), Demand({}, nodes=2))
    assert sentence == "states 2, but MinNodes of partition p is 4"


def test_all_accounts_above_an_account_are_listed(prints):
    """An account may be two levels below the one that a partition allows."""
    parents = {"climate": "science", "science": "root", "root": ""}
    prints(
        {
            "scontrol show config": "AccountingStorageEnforce = associations",
            r".* show associations account=(\w+) user= .*": lambda name: f"{name}|{parents[name]}",
        }
    )
    assert limits.Accounts().list_parents("climate") == {"science", "root"}
