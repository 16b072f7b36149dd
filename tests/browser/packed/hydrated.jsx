/** The documented component where a server has rendered it, and what React found to mend. */
import { StrictMode } from "react";
import { hydrateRoot } from "react-dom/client";
import { Offer } from "./offer.jsx";

globalThis.mended = [];
const note = (error) => mended.push(String(error));
const root = document.getElementById("root");
globalThis.served = root.innerHTML;
hydrateRoot(root, <StrictMode><Offer visits={3} premium={false} /></StrictMode>, { onRecoverableError: note, onUncaughtError: note });
