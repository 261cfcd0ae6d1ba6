// A lock file that names its process. A process that was killed leaves the file behind, but not a
// process with its id and start time.

import { open, readFile, unlink } from "node:fs/promises";

export async function lock(path: string): Promise<void> {
  for (let attempt = 0; attempt < 10; attempt += 1) {
    try {
      const file = await open(path, "wx");
      await file.writeFile(`${process.pid} ${await startOf(process.pid)}`);
      await file.close();
      return;
    } catch (error) {
      if ((error as { code?: string }).code !== "EEXIST") throw error;
    }
    const [pid = "", start = ""] = (await readFile(path, "utf8").catch(() => "")).split(" ");
    if (pid !== "" && (await isAlive(Number(pid), start))) {
      throw new Error(`${path} belongs to process ${pid}, which is running`);
    }
    await unlink(path).catch(() => undefined);
  }
  throw new Error(`${path} could not be created: several processes compete for it`);
}

export async function unlock(path: string): Promise<void> {
  await unlink(path).catch(() => undefined);
}

async function isAlive(pid: number, start: string): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as { code?: string }).code === "EPERM";
  }
  return (await startOf(pid)) === start;
}

/** The start time of a process; empty where the system does not show it. */
async function startOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}
