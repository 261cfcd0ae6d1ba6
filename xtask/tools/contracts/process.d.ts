// The part of Node that the programs use.
declare const process: { env: Record<string, string | undefined> };
